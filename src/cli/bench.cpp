// Hands over to the harness of the benchmarks, a script that is in the checkout or was installed with Grus.
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/log.hpp"
#include "cli/child.hpp"
#include "cli/command.hpp"
#include "cli/help.hpp"
#include "cli/problem.hpp"

namespace grus::cli {
namespace fs = std::filesystem;
namespace {

int bench(const std::vector<std::string>& arguments) {
  const fs::path grus = fs::read_symlink("/proc/self/exe");
  for (const char* folder : {"../../bench", "../share/grus/bench"}) {
    const fs::path script = (grus.parent_path() / folder / "run").lexically_normal();
    std::error_code error;
    if (!fs::exists(script, error)) continue;
    std::vector<std::string> command{"python3", script};
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.insert(command.end(), {"--grus", grus});
    throw Problem{fmt::format("python3: {}", std::strerror(become(command)))};
  }
  throw Problem{"the benchmarks aren't there; build or install Grus again"};
}

}  // namespace

Subcommand add_bench(CLI::App& grus) {
  CLI::App* app = grus.add_subcommand("bench", "Run the papers' workloads natively and through Grus, and compare");
  app->formatter(std::make_shared<Help>("grus bench [OPTIONS] [workload...]"));
  app->set_help_flag();  // the harness has its own
  app->prefix_command();
  return {app, [app] { return bench(app->remaining()); }};
}

}  // namespace grus::cli
