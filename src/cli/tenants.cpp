#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "channel/status.hpp"
#include "cli/command.hpp"
#include "cli/gpu_option.hpp"
#include "cli/problem.hpp"
#include "cli/sessions.hpp"
#include "cli/size.hpp"
#include "cli/table.hpp"
#include "server/scheduler.hpp"

namespace grus::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  grus tenants                                      who shares the devices of this user's server
  grus tenants unix:/run/grus/serve.sock --set alice --weight 3
  grus tenants --set session-1f00c0de --cap 20
  grus tenants --set bob --memory 4GiB              all of bob's sessions together

A tenant is a client certificate's name (over TLS), a user (through a Unix socket), or a session by itself. What is set
counts at once, until the server ends; `tenants` in its serve.toml stays. Programs are told how much memory there is when
they begin. What is swapped out was moved from a device that is full to the server's host, and comes back when it is used.

Exit status: 0 done, 1 the server can't be asked or refuses, 2 wrong usage.)";

struct Options {
  std::string server = "auto";
  channel::TenantChange change;
  std::string tenant;
  std::string memory;
  bool json = false;
};

void print(const json& tenants) {
  const Style style{stdout};
  Table table{{{"tenant"},
               {"sessions", Align::right},
               {"weight", Align::right},
               {"cap", Align::right},
               {"device time", Align::right},
               {"waited", Align::right},
               {"longest wait", Align::right},
               {"memory", Align::right},
               {"of", Align::right},
               {"swapped out", Align::right}}};
  for (const json& tenant : tenants) {
    table.add({tenant.value("tenant", ""), std::to_string(tenant.value("sessions", 0)),
               std::to_string(tenant.value("weight", 0)), fmt::format("{} %", tenant.value("cap_percent", 0)),
               fmt::format("{:.1f} s", tenant.value("device_seconds", 0.0)),
               fmt::format("{:.1f} s", tenant.value("waited_seconds", 0.0)),
               fmt::format("{:.3f} s", tenant.value("longest_wait_seconds", 0.0)), size_of(tenant, "memory_bytes"),
               quota_text(tenant), size_of(tenant, "swapped_out_bytes")});
  }
  fmt::print("{}", table.empty() ? "nobody has used it yet\n" : table.text(style, 0));
}

int tenants(Options& options) {
  const bool changes = !options.tenant.empty();
  Size memory;
  if (!options.memory.empty() && !read_size(options.memory, memory))
    throw Problem{fmt::format("--memory: {} is no size: write 512MiB or 2GiB", options.memory), kUsage};
  if (!options.memory.empty())
    options.change.memory = memory.bytes == 0 ? channel::TenantChange::kNoQuota : memory.bytes;
  if (!changes && (options.change.weight != 0 || options.change.cap != 0 || options.change.memory != 0))
    throw Problem{"--weight, --cap and --memory need --set, which says whose", kUsage};
  if (options.tenant.size() >= options.change.tenant.size())
    throw Problem{"--set: that is too long for a name", kUsage};
  options.tenant.copy(options.change.tenant.data(), options.tenant.size());
  const auto address = options.server == "auto" ? channel::default_address() : channel::Address::parse(options.server);
  const std::string said = changes ? channel::ask_change(address, options.change) : channel::ask_status(address);
  const json answer = server_answer(address, said);
  if (!changes && !answer.value("shares", false) && !answer.value("limits", false))
    throw Problem{
        fmt::format("{}: it doesn't share out its devices: start it with --shares or --memory", address.text())};
  if (options.json) {
    fmt::print("{}\n", answer["tenants"].dump(2));
  } else {
    print(answer["tenants"]);
  }
  return kDone;
}

}  // namespace

Subcommand add_tenants(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = grus.add_subcommand("tenants", "Show or change how the devices of a server are shared");
  app->footer(kExamples);
  app->add_option("server", options->server, "The server: unix:PATH; else this user's")
      ->check(is_server_address())
      ->type_name("ADDRESS");
  app->add_option("--set", options->tenant, "Whose part to change")->type_name("TENANT");
  app->add_option("--weight", options->change.weight, "Its part of a device's time, beside those of others")
      ->check(CLI::Range(1U, server::TenantTerms::kMostWeight))
      ->type_name("NUMBER");
  app->add_option("--cap", options->change.cap, "Percent of a device's time, at most")
      ->check(CLI::Range(1U, 100U))
      ->type_name("PERCENT");
  app->add_option("--memory", options->memory,
                  "What its sessions may have in buffers and images together, at most; 0 for as much as the server's "
                  "--memory says")
      ->type_name("SIZE");
  app->add_flag("--json", options->json, "As JSON, for scripts");
  return {app, [options] { return tenants(*options); }};
}

}  // namespace grus::cli
