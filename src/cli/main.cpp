#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/help.hpp"
#include "cli/problem.hpp"

namespace grus::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  grus run -- clinfo                     run a program through Grus
  grus run --objects -- ./simulation     and show what it created and called
  grus info                              which devices there are, and what can be moved
  grus serve                             offer this machine's devices to programs elsewhere; grus ps
  grus move my-job --to unix:/run/b.sock move a running program to another device; grus ps lists them
  grus vm migrate web --to web2          move a virtual machine that uses a GPU to another host
  grus bench --quick                     what Grus costs here, on the workloads of its papers
  sudo grus enable                       put every OpenCL program of this system on Grus

`grus SUBCOMMAND --help` says more. Exit status: 0 done, 1 failed, 2 wrong usage.)";

int usage_error(const CLI::App& grus, const std::string& message) {
  std::string help = "grus";
  for (const CLI::App* subcommand : grus.get_subcommands()) help += " " + subcommand->get_name();
  fmt::print(stderr, "grus: {}\nTry `{} --help`.\n", message, help);
  return kUsage;
}

int run(const std::vector<std::string>& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  const std::vector<std::string> after_dashes{dashes, arguments.end()};
  std::vector<std::string> before_dashes{arguments.begin(), dashes};

  CLI::App grus{"Grus runs OpenCL programs, unmodified, and tracks every object they make.", "grus"};
  grus.require_subcommand(1);
  grus.set_version_flag("--version", "grus " GRUS_VERSION);
  grus.footer(kExamples);
  grus.formatter(std::make_shared<Help>());  // subcommands inherit it
  const std::vector<Subcommand> subcommands = {add_run(grus, after_dashes),
                                               add_info(grus),
                                               add_serve(grus),
                                               add_ps(grus),
                                               add_tenants(grus),
                                               add_top(grus),
                                               add_move(grus),
                                               add_drain(grus),
                                               add_suspend(grus),
                                               add_resume(grus),
                                               add_checkpoint(grus),
                                               add_restore(grus),
                                               add_why(grus),
                                               add_profile(grus),
                                               add_keys(grus),
                                               add_relay(grus),
                                               add_vm(grus),
                                               add_agent(grus),
                                               add_bench(grus),
                                               add_enable(grus),
                                               add_disable(grus),
                                               add_worker(grus),
                                               add_door(grus)};
  try {
    std::reverse(before_dashes.begin(), before_dashes.end());  // as CLI11 wants it
    grus.parse(std::move(before_dashes));
    for (const Subcommand& subcommand : subcommands) {
      if (!subcommand.app->parsed()) continue;
      if (!after_dashes.empty() && subcommand.app->get_name() != "run") {
        return usage_error(grus, "only `grus run` takes a program after --");
      }
      return subcommand.run();
    }
    return kUsage;
  } catch (const CLI::Success& wanted) {  // --help, --version
    return grus.exit(wanted);
  } catch (const CLI::ParseError& error) {
    return usage_error(grus, error.what());
  } catch (const Problem& problem) {
    if (problem.exit_code == kUsage) return usage_error(grus, problem.what());
    fmt::print(stderr, "grus: {}\n", problem.what());
    return problem.exit_code;
  }
}

}  // namespace
}  // namespace grus::cli

int main(int argc, char** argv) {
  try {
    return grus::cli::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "grus: %s\n", error.what());
    return grus::cli::kFailed;
  }
}
