#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/problem.hpp"
#include "cli/sessions.hpp"
#include "cli/table.hpp"

namespace grus::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  grus move 4711 --to tcp:gpu2:7070        the program with that process id goes to a server
  grus move my-job --to local              back to this machine's own device
  grus move my-job --to "RTX 4090"         to the local device with that in its name, or by number: --to 0:1
  grus move all --to unix:/run/b.sock --dry-run

Until the switch, whatever goes wrong leaves the program running where it was; so does Ctrl-C.
Exit status: 0 moved, 1 refused or failed, 2 wrong usage.)";

struct Options {
  std::string session;
  std::string to;
  std::string device;
  std::uint64_t bandwidth = 0;
  std::string trace;
  int rounds = 10;
  int max_stop = 0;
  bool dry_run = false;
  bool json = false;
};

bool is_address(const std::string& text) { return text.starts_with("unix:") || text.starts_with("tcp:"); }

json request_for(const Options& options) {
  json request = {{"command", "move"}, {"rounds", options.rounds}, {"dry_run", options.dry_run}};
  const bool is_place = is_address(options.to) || options.to == "local";
  request["to"] = is_place ? options.to : "local";
  request["device"] = is_place ? options.device : options.to;
  if (options.max_stop != 0) request["max_stop_ms"] = options.max_stop;
  if (options.bandwidth != 0) request["bytes_per_second"] = options.bandwidth;
  return request;
}

std::string milliseconds(const json& value) { return fmt::format("{:.2f} ms", 1e3 * value.get<double>()); }

class Bar {
 public:
  void show(const json& progress) {
    if (!isatty(STDERR_FILENO)) return;
    const auto done = progress.value("done", std::uint64_t{0});
    const auto all = std::max(progress.value("all", std::uint64_t{0}), std::uint64_t{1});
    constexpr int kWidth = 24;
    const int filled = static_cast<int>(kWidth * std::min(done, all) / all);
    fmt::print(stderr, "\r\033[K{:<11} [{:<24}] {:>9} {:>9}/s  stop about {}", progress.value("phase", ""),
               std::string(static_cast<std::size_t>(filled), '#'), size_text(done),
               size_text(static_cast<std::uint64_t>(progress.value("bytes_per_second", 0.0))),
               milliseconds(progress["predicted_stop_seconds"]));
    std::fflush(stderr);
    shown_ = true;
  }
  ~Bar() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool shown_ = false;
};

void print(const json& session, const json& outcome) {
  const Style style{stdout};
  fmt::print("{}[{}] moved to {}\n", session.value("program", ""), session.value("pid", 0),
             outcome["plan"].value("destination", ""));
  Table table{{{"phase"}, {"from", Align::right}, {"for", Align::right}, {"compared", Align::right}, {"sent", Align::right}}};
  for (const json& phase : outcome["phases"]) {
    table.add({phase.value("phase", ""), milliseconds(phase["start"]), milliseconds(phase["seconds"]),
               size_text(phase.value("read", std::uint64_t{0})), size_text(phase.value("sent", std::uint64_t{0}))});
  }
  fmt::print("{}stop: {}, of which {} for the device to finish what it had\n", table.text(style, 2),
             style.bold(milliseconds(outcome["stop_seconds"])), milliseconds(outcome["drain_seconds"]));
}

// For chrome://tracing and the like.
void write_trace(const std::string& path, const json& outcomes) {
  json events = json::array();
  for (const json& outcome : outcomes) {
    if (!outcome.contains("phases")) continue;
    for (const json& phase : outcome["phases"]) {
      events.push_back({{"name", phase["phase"]}, {"ph", "X"}, {"pid", outcome["pid"]}, {"tid", 1},
                        {"ts", 1e6 * phase["start"].get<double>()}, {"dur", 1e6 * phase["seconds"].get<double>()},
                        {"args", {{"read", phase["read"]}, {"sent", phase["sent"]}}}});
    }
  }
  std::ofstream file{path};
  file << json{{"traceEvents", events}}.dump(1) << '\n';
  if (!file.flush()) throw Problem{fmt::format("{}: can't be written", path)};
}

int move(const Options& options) {
  json outcomes = json::array();
  int status = kDone;
  for (const json& session : sessions_meant(options.session)) {
    const pid_t pid = session.value("pid", 0);
    json outcome;
    {
      Bar bar;
      outcome = ask_session(pid, request_for(options), [&](const json& progress) { bar.show(progress); });
    }
    outcome["pid"] = pid;
    if (!outcome.value("ok", false)) {
      fmt::print(stderr, "grus: {}[{}] stays where it is:\n  {}\n", session.value("program", ""), pid,
                 outcome.value("error", ""));
      status = kFailed;
    } else if (!options.json && options.dry_run) {
      fmt::print("{}[{}] can move to {}: {} objects, {}\n", session.value("program", ""), pid,
                 outcome["plan"].value("destination", ""), outcome["plan"].value("objects", 0),
                 size_text(outcome["plan"].value("bytes", std::uint64_t{0})));
    } else if (!options.json) {
      print(session, outcome);
    }
    outcomes.push_back(std::move(outcome));
  }
  if (options.json) fmt::print("{}\n", outcomes.dump(2));
  if (!options.trace.empty()) write_trace(options.trace, outcomes);
  return status;
}

}  // namespace

Subcommand add_move(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = grus.add_subcommand("move", "Move a running program to another device, here or at a server");
  app->footer(kExamples);
  app->add_option("SESSION", options->session, "A process id, a name given with `grus run --name`, or `all`")->required();
  app->add_option("--to", options->to, "unix:PATH, tcp:HOST:PORT, `local`, or part of a local device's name")
      ->required()
      ->type_name("WHERE");
  app->add_option("--device", options->device, "Part of the name of the device there, or PLATFORM:DEVICE by number")
      ->type_name("DEVICE");
  app->add_option("--rounds", options->rounds, "Copy at most so often while the program runs; 0: only in the stop")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str()
      ->type_name("N");
  app->add_option("--max-stop", options->max_stop, "Refuse if results would have to wait longer than this")
      ->check(CLI::Range(1, 1000000))
      ->type_name("MS");
  app->add_option("--bandwidth", options->bandwidth, "Copy at most so much per second while the program runs: 500MB, 2GB")
      ->transform(CLI::AsSizeValue(true))
      ->type_name("BYTES");
  app->add_option("--trace", options->trace, "Write the timeline there, as chrome://tracing reads it")->type_name("FILE");
  app->add_flag("--dry-run", options->dry_run, "Only say whether it could be done");
  app->add_flag("--json", options->json, "As JSON, for scripts");
  return {app, [options] { return move(*options); }};
}

}  // namespace grus::cli
