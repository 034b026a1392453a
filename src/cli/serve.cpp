#include "server/serve.hpp"

#include <memory>

#include "base/log.hpp"
#include "channel/stream.hpp"
#include "cli/command.hpp"
#include "cli/help.hpp"
#include "cli/installation.hpp"
#include "cli/problem.hpp"
#include "server/sandbox.hpp"
#include "server/worker.hpp"

namespace grus::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  grus serve                                        for programs of this user on this host
  grus serve --listen tcp:127.0.0.1:7070            for those behind a tunnel
  grus run --gpu unix:/run/user/1000/grus/serve.sock -- clinfo -l

Exit status: 0 ended by SIGTERM or SIGINT, 1 it can't listen there, 2 wrong usage.)";

struct Options {
  std::vector<std::string> listen;
  std::string vendors;
  bool sandbox = true;
};

// Without a word about who may come in, nobody from another host may.
void require_loopback(const channel::Address& address) {
  if (address.kind != channel::Address::Kind::tcp) return;
  if (address.path == "localhost" || address.path == "::1" || address.path.starts_with("127.")) return;
  throw Problem{fmt::format("--listen {}: other hosts could use it without a password; only loopback is served yet",
                            address.text()),
                kUsage};
}

// Drivers and compilers work on what strangers send.
void require_sandbox(const Options& options) {
  if (!options.sandbox) {
    log::warn("serve", "without a sandbox, a client that finds a hole in a driver can do all that this user can");
  } else if (const std::string why = server::why_no_sandbox(); !why.empty()) {
    throw Problem{fmt::format("{}, so workers can't be confined; --no-sandbox serves without", why)};
  }
}

int serve(const Options& options) {
  server::ServeOptions how;
  try {
    for (const auto& text : options.listen) how.listen.push_back(channel::Address::parse(text));
  } catch (const std::invalid_argument& error) {
    throw Problem{error.what(), kUsage};
  }
  if (how.listen.empty()) how.listen.push_back(channel::default_address());
  for (const auto& address : how.listen) {
    require_loopback(address);
    if (address.kind == channel::Address::Kind::tcp)
      log::warn("serve", "{}: every user of this host can run programs there, as this user", address.text());
  }
  require_sandbox(options);
  setenv("GRUS_VENDORS", choose_vendors(options.vendors, find_installation()).c_str(), /*overwrite=*/1);
  how.worker = {std::filesystem::read_symlink("/proc/self/exe"), "worker"};
  if (!options.sandbox) how.worker.emplace_back("--no-sandbox");
  try {
    return server::serve(how);
  } catch (const channel::Lost& error) {
    throw Problem{error.what()};
  }
}

}  // namespace

Subcommand add_serve(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = grus.add_subcommand("serve", "Offer this machine's devices to programs elsewhere, or in containers");
  app->footer(kExamples);
  app->add_option("--listen", options->listen,
                  "unix:PATH or tcp:HOST:PORT, again for more; else a socket in the user's runtime folder")
      ->type_name("ADDRESS");
  app->add_option("--vendors", options->vendors, "Drivers to offer, as for `grus run`")->type_name("PATH");
  app->add_flag("!--no-sandbox", options->sandbox,
                "Don't confine workers, for a driver that needs more than the sandbox lets it do");
  return {app, [options] { return serve(*options); }};
}

// What `grus serve` becomes for each session; nobody else calls it.
Subcommand add_worker(CLI::App& grus) {
  auto control = std::make_shared<int>(-1);
  auto options = std::make_shared<server::WorkerOptions>();
  CLI::App* app = grus.add_subcommand("worker", "")->group("");
  app->add_option("control", *control)->required();
  app->add_flag("!--no-sandbox", options->sandbox);
  return {app, [control, options] { return server::run_worker(*control, *options); }};
}

}  // namespace grus::cli
