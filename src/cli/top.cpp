#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/log.hpp"
#include "channel/status.hpp"
#include "cli/command.hpp"
#include "cli/gpu_option.hpp"
#include "cli/problem.hpp"
#include "cli/sessions.hpp"
#include "cli/table.hpp"

namespace grus::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  grus top                                          who uses this user's server, until Ctrl-C
  grus top unix:/run/grus/serve.sock --interval 5
  grus top --once --json | jq '.tenants[] | {tenant, device_percent, swapped_out_bytes}'

Device time and waiting are known of servers with --shares: percent of one device's time, within the interval. What is
swapped out was moved from a device's memory, which is full, to the server's host. Sessions that are just moved from or
to the server come last: what was copied, of what there is to look at in this phase. Users see their own part; the user
of the server and root see all.

Exit status: 0 done, 1 the server can't be asked, 2 wrong usage.)";

constexpr const char* kClear = "\x1b[H\x1b[2J";

struct Options {
  std::string server = "auto";
  double interval = 1;
  bool once = false;
  bool json = false;
};

// What a tenant or a session did since then, which may not have been there.
void add_rates(json& now, const json& all_before, const char* name, double seconds) {
  for (json& one : now) {
    json before = json::object();
    for (const json& other : all_before) {
      if (other[name] == one[name]) before = other;
    }
    const auto percent = [&](const char* key) {
      const double more = one.value(key, 0.0) - before.value(key, 0.0);
      return seconds > 0 ? std::max(0.0, 100 * more / seconds) : 0.0;
    };
    if (one.contains("device_seconds")) one["device_percent"] = percent("device_seconds");
    if (one.contains("waited_seconds")) one["waited_percent"] = percent("waited_seconds");
    const auto count = one.value("commands", std::uint64_t{0});
    const auto earlier = std::min(count, before.value("commands", std::uint64_t{0}));
    one["commands_per_second"] = seconds > 0 ? static_cast<double>(count - earlier) / seconds : 0.0;
  }
}

std::string percent_of(const json& what, const char* key) {
  return what.contains(key) ? fmt::format("{:.1f} %", what[key].get<double>()) : "-";
}

std::string view_of(const json& status, const Style& style) {
  std::string text =
      fmt::format("{}: {} sessions, {} started, {} refused\n", style.bold(status.value("server", "")),
                  status["sessions"].size(), status.value("sessions_started", 0), status.value("refusals", 0));
  for (const json& device : status["devices"])
    text += fmt::format("device {}: {} of {} free\n", device.value("device", 0), size_of(device, "free_bytes"),
                        size_of(device, "memory_bytes"));
  if (status.value("swap_bytes", std::uint64_t{0}) != 0)
    text += fmt::format("swapped out: {} of {}\n", size_of(status, "swap_used_bytes"), size_of(status, "swap_bytes"));
  Table tenants{{{"tenant"},
                 {"sessions", Align::right},
                 {"weight", Align::right},
                 {"device time", Align::right},
                 {"waiting", Align::right},
                 {"longest wait", Align::right},
                 {"commands/s", Align::right},
                 {"memory", Align::right},
                 {"of", Align::right},
                 {"on device", Align::right},
                 {"swapped out", Align::right}}};
  for (const json& one : status["tenants"]) {
    tenants.add(
        {one.value("tenant", ""), std::to_string(one.value("sessions", 0)), std::to_string(one.value("weight", 0)),
         percent_of(one, "device_percent"), percent_of(one, "waited_percent"),
         one.contains("longest_wait_seconds") ? fmt::format("{:.3f} s", one.value("longest_wait_seconds", 0.0)) : "-",
         with_thousands(static_cast<std::uint64_t>(one.value("commands_per_second", 0.0))),
         size_of(one, "memory_bytes"), quota_text(one), size_of(one, "on_device_bytes"),
         size_of(one, "swapped_out_bytes")});
  }
  if (!tenants.empty()) text += "\n" + tenants.text(style, 0);
  Table moves{{{"moving session"}, {"tenant"}, {""}, {"done", Align::right}, {"of", Align::right}}};
  for (const json& one : status["sessions"]) {
    if (!one.contains("move")) continue;
    const json& move = one["move"];
    moves.add({one.value("session", ""), one.value("tenant", ""), move.value("way", ""), size_of(move, "done_bytes"),
               size_of(move, "all_bytes")});
  }
  if (!moves.empty()) text += "\n" + moves.text(style, 0);
  return text;
}

int top(const Options& options) {
  const auto address = options.server == "auto" ? channel::default_address() : channel::Address::parse(options.server);
  const auto ask = [&] { return server_answer(address, channel::ask_status(address)); };
  const bool once = options.once || options.json || isatty(STDOUT_FILENO) == 0;
  json before = ask();
  for (;;) {
    const auto since = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>{options.interval});
    json now = ask();
    const double seconds = std::chrono::duration<double>{std::chrono::steady_clock::now() - since}.count();
    json shown = {{"server", address.text()}};
    shown.update(now);
    add_rates(shown["tenants"], before["tenants"], "tenant", seconds);
    add_rates(shown["sessions"], before["sessions"], "session", seconds);
    if (options.json) {
      fmt::print("{}\n", shown.dump(2));
    } else {
      fmt::print("{}{}", once ? "" : kClear, view_of(shown, Style{stdout}));
    }
    std::fflush(stdout);
    if (once) return kDone;
    before = std::move(now);
  }
}

}  // namespace

Subcommand add_top(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = grus.add_subcommand("top", "Watch who uses a server's devices: time, waiting, and memory");
  app->footer(kExamples);
  app->add_option("server", options->server, "The server: unix:PATH; else this user's")
      ->check(is_server_address())
      ->type_name("ADDRESS");
  app->add_option("--interval", options->interval, "Between two looks")
      ->check(CLI::Range(0.05, 3600.0))
      ->type_name("SECONDS")
      ->capture_default_str();
  app->add_flag("--once", options->once, "Show it once, after one interval; as where the output is no terminal");
  app->add_flag("--json", options->json, "As JSON, for scripts, once");
  return {app, [options] { return top(*options); }};
}

}  // namespace grus::cli
