#include "server/serve.hpp"

#include <memory>

#include "base/log.hpp"
#include "channel/stream.hpp"
#include "cli/command.hpp"
#include "cli/help.hpp"
#include "cli/installation.hpp"
#include "cli/problem.hpp"
#include "server/worker.hpp"

namespace grus::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  grus serve                                        for programs of this user on this host
  grus serve --listen tcp:127.0.0.1:7070            for those behind a tunnel
  grus serve --listen tcp:0.0.0.0:7070              for other hosts, with keys that `grus keys` made
  grus run --gpu unix:/run/user/1000/grus/serve.sock -- clinfo -l

Over TCP, clients from other hosts show a certificate or a token, inside TLS. On loopback it is plain unless
--tls, --keys or GRUS_KEYS is given.

Exit status: 0 ended by SIGTERM or SIGINT, 1 it can't listen there, 2 wrong usage.)";

struct Options {
  std::vector<std::string> listen;
  std::string vendors;
  std::string keys;
  bool tls = false;
};

// How clients come in there. Nobody from another host does without keys.
channel::Security security_of(const channel::Address& address, const Options& options) {
  using channel::Security;
  if (address.kind != channel::Address::Kind::tcp) return Security::plain;
  if (channel::is_loopback(address) && !options.tls && !channel::are_keys_named()) {
    log::warn("serve", "{}: every user of this host can run programs there, as this user", address.text());
    return Security::plain;
  }
  try {
    const channel::Keys keys{channel::Keys::Side::server, channel::keys_folder()};
  } catch (const channel::Lost& lost) {
    throw Problem{
        fmt::format("--listen {}: this needs TLS, and its keys can't be used: {}", address.text(), lost.what())};
  }
  return Security::tls;
}

int serve(const Options& options) {
  server::ServeOptions how;
  // Workers read them, too.
  if (!options.keys.empty()) setenv("GRUS_KEYS", std::filesystem::absolute(options.keys).c_str(), /*overwrite=*/1);
  try {
    for (const auto& text : options.listen) {
      const auto address = channel::Address::parse(text);
      how.listen.push_back({address, security_of(address, options)});
    }
  } catch (const std::invalid_argument& error) {
    throw Problem{error.what(), kUsage};
  }
  if (how.listen.empty()) how.listen.push_back({channel::default_address()});
  setenv("GRUS_VENDORS", choose_vendors(options.vendors, find_installation()).c_str(), /*overwrite=*/1);
  how.worker = {std::filesystem::read_symlink("/proc/self/exe"), "worker"};
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
  app->add_option("--keys", options->keys,
                  "The folder of the server's keys, made by `grus keys`; else GRUS_KEYS, ~/.config/grus/keys, or "
                  "/etc/grus/keys")
      ->type_name("FOLDER");
  app->add_flag("--tls", options->tls, "TLS on loopback, too, as it is if keys are named");
  return {app, [options] { return serve(*options); }};
}

// What `grus serve` becomes for each session; nobody else calls it.
Subcommand add_worker(CLI::App& grus) {
  auto control = std::make_shared<int>(-1);
  CLI::App* app = grus.add_subcommand("worker", "")->group("");
  app->add_option("control", *control)->required();
  return {app, [control] { return server::run_worker(*control); }};
}

}  // namespace grus::cli
