#include "server/serve.hpp"

#include <pwd.h>

#include <algorithm>
#include <memory>

#include "base/log.hpp"
#include "channel/stream.hpp"
#include "cli/command.hpp"
#include "cli/help.hpp"
#include "cli/installation.hpp"
#include "cli/problem.hpp"
#include "cli/serve_settings.hpp"
#include "cli/tenant_text.hpp"
#include "server/door.hpp"
#include "server/sandbox.hpp"
#include "server/worker.hpp"

namespace grus::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  grus serve                                        for programs of this user on this host
  grus serve --listen tcp:127.0.0.1:7070            for those behind a tunnel
  grus serve --listen tcp:0.0.0.0:7070              for other hosts, with keys that `grus keys` made
  grus serve --device NVIDIA --sessions 4 --memory 8GiB
  grus serve --listen unix:/run/grus/serve.sock --user alice --user 1001 --audit /var/log/grus.log
  grus serve --drain 60                             SIGTERM lets programs end, for a minute
  grus serve --config serve.toml --print-config
  grus run --gpu unix:/run/user/1000/grus/serve.sock -- clinfo -l

Over TCP, clients from other hosts show a certificate or a token, inside TLS. On loopback it is plain unless
--tls, --keys or GRUS_KEYS is given. SIGHUP ends sessions of clients that `grus keys --revoke` named.

Exit status: 0 ended by SIGTERM or SIGINT, 1 it can't listen there, 2 wrong usage or settings.)";

struct Options {
  ServeSettings settings;
  std::string file;
  bool print = false;
};

// How clients come in there. Nobody from another host does without keys.
channel::Security security_of(const channel::Address& address, const ServeSettings& settings) {
  using channel::Security;
  if (address.kind == channel::Address::Kind::virtio_serial || address.kind == channel::Address::Kind::ivshmem)
    throw Problem{
        fmt::format("--listen {}: listen at a Unix socket, and let `grus relay` bring guests there", address.text()),
        kUsage};
  if (address.kind == channel::Address::Kind::vsock)
    log::warn("serve", "{}: every user of a guest of this host can run programs there, as this user", address.text());
  if (address.kind != channel::Address::Kind::tcp) return Security::plain;
  if (channel::is_loopback(address) && !settings.tls && !channel::are_keys_named()) {
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

// Drivers and compilers work on what strangers send.
void require_sandbox(const ServeSettings& settings) {
  if (!settings.sandbox) {
    log::warn("serve", "without a sandbox, a client that finds a hole in a driver can do all that this user can");
  } else if (const std::string why = server::why_no_sandbox(); !why.empty()) {
    throw Problem{fmt::format("{}, so workers can't be confined; --no-sandbox serves without", why)};
  }
}

uid_t user_of(const std::string& name) {
  if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos)
    return static_cast<uid_t>(std::stoul(name));
  if (const passwd* const entry = getpwnam(name.c_str())) return entry->pw_uid;
  throw Problem{fmt::format("--user {}: there is no such user", name), kUsage};
}

std::pair<std::string, server::TenantTerms> tenant_of(const std::string& text) {
  try {
    return read_tenant(text);
  } catch (const std::invalid_argument& error) {
    throw Problem{fmt::format("--tenant {}: {}", text, error.what()), kUsage};
  }
}

std::vector<server::ServeOptions::Place> places_of(const ServeSettings& settings) {
  std::vector<server::ServeOptions::Place> places;
  try {
    for (const auto& text : settings.listen) {
      const auto address = channel::Address::parse(text);
      places.push_back({address, security_of(address, settings)});
    }
  } catch (const std::invalid_argument& error) {
    throw Problem{error.what(), kUsage};
  }
  if (places.empty()) places.push_back({channel::default_address()});
  return places;
}

// Who can change what is cached has others run it.
bool shares_cache(const ServeSettings& settings, const std::vector<server::ServeOptions::Place>& places) {
  const std::string& text = settings.shared_cache;
  if (!text.empty() && text != "yes" && text != "no")
    throw Problem{fmt::format("--shared-cache {}: write yes or no", text), kUsage};
  if (!text.empty()) return text == "yes";
  return settings.users.empty() && std::all_of(places.begin(), places.end(), [](const auto& place) {
           return place.address.kind == channel::Address::Kind::unix_socket;
         });
}

channel::Address metrics_address(const std::string& text) {
  const bool is_port = text.find_first_not_of("0123456789") == std::string::npos;
  try {
    auto address = channel::Address::parse((is_port ? "tcp:127.0.0.1:" : "tcp:") + text);
    if (!channel::is_loopback(address))
      log::warn("serve", "--metrics {}: everybody who can reach it reads who uses what", text);
    return address;
  } catch (const std::invalid_argument&) {
    throw Problem{fmt::format("--metrics {}: write PORT or HOST:PORT", text), kUsage};
  }
}

// What becomes a process of the server's.
std::vector<std::string> command_for(const char* what, const ServeSettings& settings) {
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe"), what};
  if (!settings.sandbox) command.emplace_back("--no-sandbox");
  return command;
}

std::vector<std::string> worker_command(const ServeSettings& settings) {
  std::vector<std::string> command = command_for("worker", settings);
  command.push_back(fmt::format("--objects={}", settings.objects));
  command.push_back(fmt::format("--build-limit={}", settings.build_limit));
  command.push_back(fmt::format("--output-limit={}", settings.output_limit.bytes));
  for (const auto& text : settings.devices) command.push_back("--device=" + text);
  return command;
}

int serve(const CLI::App& app, Options& options) {
  ServeSettings& settings = options.settings;
  const std::string file = read_settings(options.file, app, settings);
  server::ServeOptions how;
  for (const auto& text : settings.tenants) how.tenants.insert_or_assign(tenant_of(text).first, tenant_of(text).second);
  if (options.print) {
    fmt::print("# {}\n{}", file.empty() ? "no file" : file, text_of(settings));
    return kDone;
  }
  // The door reads them.
  if (!settings.keys.empty()) setenv("GRUS_KEYS", std::filesystem::absolute(settings.keys).c_str(), /*overwrite=*/1);
  how.listen = places_of(settings);
  how.grace = std::chrono::seconds{settings.grace};
  how.drain = std::chrono::seconds{settings.drain};
  how.sessions = settings.sessions;
  how.tenant_sessions = settings.tenant_sessions;
  how.shared_cache = shares_cache(settings, how.listen);
  how.direct = settings.direct;
  how.audit = settings.audit;
  if (!settings.metrics.empty()) how.metrics = metrics_address(settings.metrics);
  how.shares = settings.shares;
  how.memory = settings.memory.bytes;
  how.memory_shares = settings.memory_shares;
  how.device_memory = settings.device_memory.bytes;
  how.swap = settings.swap.bytes;
  how.time_limit = std::chrono::seconds{settings.time_limit};
  for (const auto& name : settings.users) how.users.push_back(user_of(name));
  require_sandbox(settings);
  setenv("GRUS_VENDORS", choose_vendors(settings.vendors, find_installation()).c_str(), /*overwrite=*/1);
  how.worker = worker_command(settings);
  how.door = command_for("door", settings);
  try {
    return server::serve(how);
  } catch (const std::runtime_error& error) {
    throw Problem{error.what()};
  }
}

}  // namespace

Subcommand add_serve(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = grus.add_subcommand("serve", "Offer this machine's devices to programs elsewhere, or in containers");
  app->footer(kExamples);
  add_options(*app, options->settings);
  app->add_option("--config", options->file,
                  "A file with such settings; else grus/serve.toml in XDG_CONFIG_HOME or /etc. Options win")
      ->type_name("FILE");
  app->add_flag("--print-config", options->print, "Show the settings that count, as such a file, and do nothing");
  return {app, [app, options] { return serve(*app, *options); }};
}

// What `grus serve` becomes to let clients in; nobody else calls it.
Subcommand add_door(CLI::App& grus) {
  auto control = std::make_shared<int>(-1);
  auto confined = std::make_shared<bool>(true);
  CLI::App* app = grus.add_subcommand("door", "")->group("");
  app->add_option("control", *control)->required();
  app->add_flag("!--no-sandbox", *confined);
  return {app, [=] { return server::run_door(*control, *confined ? server::Confined::yes : server::Confined::no); }};
}

// The same for each session.
Subcommand add_worker(CLI::App& grus) {
  auto control = std::make_shared<int>(-1);
  auto options = std::make_shared<server::WorkerOptions>();
  CLI::App* app = grus.add_subcommand("worker", "")->group("");
  app->add_option("control", *control)->required();
  app->add_flag("!--no-sandbox", options->sandbox);
  app->add_flag("!--no-ready-contexts", options->ready_contexts);
  app->add_option("--objects", options->objects);
  app->add_option("--build-limit", options->build_limit);
  app->add_option("--output-limit", options->output_limit);
  app->add_option("--device", options->devices);
  app->add_option("--caches", options->caches);
  return {app, [control, options] { return server::run_worker(*control, *options); }};
}

}  // namespace grus::cli
