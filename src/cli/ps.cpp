#include <pwd.h>

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
  grus ps                                           programs here, and sessions of this user's server
  grus ps --gpu unix:/run/grus/serve.sock           of another one of this host
  grus ps --gpu tcp:gpu1:7070                       your own sessions on another host
  grus ps --json | jq '.[].sessions[] | {program, memory_bytes}'

Exit status: 0 done, 1 a server can't be asked, 2 wrong usage.)";

// What is shown per second, too.
constexpr const char* kRates[] = {"commands", "round_trips", "bytes_in", "bytes_out"};

struct Options {
  GpuOptions from;
  double interval = 0.5;
  bool json = false;
};

json ask(const channel::Address& address) { return server_answer(address, channel::ask_status(address)); }

// Of a session that wasn't there before: since it began.
void add_rates(json& session, const json& before) {
  const double seconds = session.value("seconds", 0.0) - before.value("seconds", 0.0);
  for (const std::string name : kRates) {
    const auto more = session.value(name, std::uint64_t{0}) - before.value(name, std::uint64_t{0});
    session[name + "_per_second"] = seconds > 0 ? static_cast<double>(more) / seconds : 0.0;
  }
}

json sessions_of(const channel::Address& address, double interval) {
  const json before = ask(address);
  std::this_thread::sleep_for(std::chrono::duration<double>{interval});
  json now = ask(address);
  for (json& session : now["sessions"]) {
    json earlier = json::object();
    for (const json& one : before["sessions"]) {
      if (one["session"] == session["session"]) earlier = one;
    }
    add_rates(session, earlier);
  }
  json answer = {{"server", address.text()}};
  answer.update(now);
  return answer;
}

std::string client_text(const json& peer) {
  if (peer.contains("name")) return fmt::format("{} at {}", peer.value("name", ""), peer.value("address", ""));
  if (peer.contains("address")) return peer.value("address", "");
  const auto user = peer.value("user", uid_t{0});
  const passwd* const entry = getpwuid(user);
  return fmt::format("{}[{}] of {}", peer.value("program", "?"), peer.value("pid", 0),
                     entry ? entry->pw_name : std::to_string(user));
}

std::string age_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds);
  if (whole < 60) return fmt::format("{:.1f} s", seconds);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

std::string devices_text(const json& devices) {
  std::string text;
  for (const json& device : devices) text += (text.empty() ? "" : ", ") + device.get<std::string>();
  return text.empty() ? "none yet" : text;
}

std::string objects_text(const json& objects) {
  std::string text;
  for (const auto& [type, count] : objects.items()) {
    if (count == 0 || type == "device") continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", type, count.get<std::uint64_t>());
  }
  return text;
}

std::string rate_text(const json& session, const char* name) {
  return with_thousands(static_cast<std::uint64_t>(session.value(std::string{name} + "_per_second", 0.0)));
}

std::string byte_rate_text(const json& session, const char* name) {
  return size_text(static_cast<std::uint64_t>(session.value(std::string{name} + "_per_second", 0.0)));
}

void print(const json& servers) {
  const Style style{stdout};
  for (const json& server : servers) {
    fmt::print("{}: {} sessions\n", style.bold(server.value("server", "")), server["sessions"].size());
    Table table{{{"session"},
                 {"client"},
                 {"age", Align::right},
                 {"memory", Align::right},
                 {"commands/s", Align::right},
                 {"round trips/s", Align::right},
                 {"in/s", Align::right},
                 {"out/s", Align::right},
                 {"device"},
                 {"objects"}}};
    for (const json& session : server["sessions"]) {
      table.add({session.value("session", "").substr(0, 8), client_text(session["peer"]),
                 age_text(session.value("seconds", 0.0)), size_text(session.value("memory_bytes", std::uint64_t{0})),
                 rate_text(session, "commands"), rate_text(session, "round_trips"), byte_rate_text(session, "bytes_in"),
                 byte_rate_text(session, "bytes_out"), devices_text(session["devices"]),
                 objects_text(session["objects"])});
    }
    if (!table.empty()) fmt::print("{}", table.text(style, 2));
  }
}

// Programs of this user's that run under Grus here, as a server's sessions are told.
json programs_here(double interval) {
  const auto before = local_sessions();
  std::this_thread::sleep_for(std::chrono::duration<double>{interval});
  json sessions = json::array();
  for (json& session : local_sessions()) {
    json earlier = json::object();
    for (const json& one : before) {
      if (one["pid"] == session["pid"]) earlier = one;
    }
    for (const std::string name : {"calls", "round_trips"}) {
      const auto more = session.value(name, std::uint64_t{0}) - earlier.value(name, std::uint64_t{0});
      session[name + "_per_second"] = interval > 0 ? static_cast<double>(more) / interval : 0.0;
    }
    session.erase("ok");
    sessions.push_back(std::move(session));
  }
  return sessions;
}

void print_programs(const json& sessions) {
  const Style style{stdout};
  fmt::print("{}: {} programs\n", style.bold("here"), sessions.size());
  Table table{{{"pid", Align::right},
               {"name"},
               {"program"},
               {"at"},
               {"memory", Align::right},
               {"calls/s", Align::right},
               {"round trips/s", Align::right},
               {"can move"},
               {"device"},
               {"objects"}}};
  for (const json& session : sessions) {
    table.add({std::to_string(session.value("pid", 0)), session.value("name", ""), session.value("program", ""),
               session.value("at", ""), size_text(session.value("memory_bytes", std::uint64_t{0})),
               rate_text(session, "calls"), rate_text(session, "round_trips"),
               session["immovable"].empty() ? "yes" : "no: grus why", devices_text(session["devices"]),
               objects_text(session["objects"])});
  }
  if (!table.empty()) fmt::print("{}", table.text(style, 2));
}

int ps(const Options& options) {
  set_gpu_environment(options.from);
  std::vector<channel::Address> addresses;
  for (const auto& text : options.from.gpu)
    addresses.push_back(text == "auto" ? channel::default_address() : channel::Address::parse(text));
  const bool also_here = addresses.empty();
  if (also_here) addresses.push_back(channel::default_address());
  json servers = json::array();
  json here;
  if (also_here) here = programs_here(options.interval);
  int status = kDone;
  for (const auto& address : addresses) {
    try {
      servers.push_back(sessions_of(address, options.interval));
    } catch (const std::exception& error) {
      if (also_here && !here.empty()) continue;  // a server that doesn't run is no mistake then
      fmt::print(stderr, "grus: {}\n", error.what());
      status = kFailed;
    }
  }
  if (also_here && !here.empty()) {
    if (options.json) {
      servers.insert(servers.begin(), json::object({{"server", "here"}, {"sessions", std::move(here)}}));
    } else {
      print_programs(here);
    }
  }
  if (options.json) {
    fmt::print("{}\n", servers.dump(2));
  } else {
    print(servers);
  }
  return status;
}

}  // namespace

Subcommand add_ps(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = grus.add_subcommand("ps", "List the programs that run under Grus here, and the sessions of a server");
  app->footer(kExamples);
  add_server_options(*app, options->from, "again for more; else this user's");
  app->add_option("--interval", options->interval, "For how long to watch, for what is shown per second")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str()
      ->type_name("SECONDS");
  app->add_flag("--json", options->json, "As JSON, for scripts");
  return {app, [options] { return ps(*options); }};
}

}  // namespace grus::cli
