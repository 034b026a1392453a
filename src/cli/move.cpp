#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
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

constexpr const char* kDrainExamples = R"(Examples:
  grus drain "RTX 4090" --to tcp:gpu2:7070     everything of yours on that device goes to a server
  grus drain 0:1 --to local                    to whatever other device of this machine fits
  grus drain unix:/run/a.sock --to unix:/run/b.sock --dry-run

Programs go one after another; one that can't go stays where it is, and the others still go. Suspended ones stay.
Exit status: 0 nothing is left there, 1 something is, 2 wrong usage.)";

struct Options {
  std::string command;  // for the session
  std::string session;
  std::string from;  // what is drained
  std::string to;
  std::string device;
  std::string file;
  std::uint64_t bandwidth = 0;
  std::string trace;
  std::string fingerprint;
  int sample = 0;
  std::string sample_at = "head";
  int rounds = 10;
  bool overlap = true;
  int max_stop = 0;
  bool dry_run = false;
  bool unload = false;
  bool json = false;
};

json request_for(const Options& options) {
  json request = {{"command", options.command},
                  {"rounds", options.rounds},
                  {"overlap", options.overlap},
                  {"dry_run", options.dry_run}};
  const bool is_place = is_address(options.to) || options.to == "local";
  if (!options.to.empty()) {
    request["to"] = is_place ? absolute(options.to) : "local";
    request["device"] = is_place ? options.device : options.to;
  }
  if (options.unload) request["unload"] = true;
  if (!options.from.empty() && request["to"] == "local") request["avoid"] = options.from;
  if (!options.file.empty()) request["file"] = std::filesystem::absolute(options.file).string();
  if (options.max_stop != 0) request["max_stop_ms"] = options.max_stop;
  if (options.bandwidth != 0) request["bytes_per_second"] = options.bandwidth;
  if (!options.fingerprint.empty()) request["fingerprint"] = options.fingerprint;
  if (options.sample != 0) {
    request["sample"] = options.sample;
    request["sample_at"] = options.sample_at;
  }
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
    if (shown_) std::fputs("\r\033[K", stderr);
  }

 private:
  bool shown_ = false;
};

void print(const json& session, const json& outcome, const std::string& done) {
  const Style style{stdout};
  fmt::print("{}[{}]: {}\n", session.value("program", ""), session.value("pid", 0), done);
  if (!outcome.contains("phases")) return;
  Table table{
      {{"phase"}, {"from", Align::right}, {"for", Align::right}, {"compared", Align::right}, {"sent", Align::right}}};
  for (const json& phase : outcome["phases"]) {
    table.add({phase.value("phase", ""), milliseconds(phase["start"]), milliseconds(phase["seconds"]),
               size_text(phase.value("read", std::uint64_t{0})), size_text(phase.value("sent", std::uint64_t{0}))});
  }
  fmt::print("{}stop: {}, of which {} for the device to finish what it had\n", table.text(style, 2),
             style.bold(milliseconds(outcome["stop_seconds"])), milliseconds(outcome["drain_seconds"]));
}

// For chrome://tracing and the like. Opened before anything is moved for it.
class Trace {
 public:
  explicit Trace(const std::string& path) : path_{path} {
    if (path_.empty()) return;
    file_.open(path_);
    check();
  }
  void write(const json& outcomes) {
    if (path_.empty()) return;
    file_ << json{{"traceEvents", events_of(outcomes)}}.dump(1) << std::endl;
    check();
  }

 private:
  static json events_of(const json& outcomes);
  void check() const {
    if (!file_) throw Problem{fmt::format("{}: can't be written", path_)};
  }

  const std::string& path_;
  std::ofstream file_;
};

json Trace::events_of(const json& outcomes) {
  json events = json::array();
  for (const json& outcome : outcomes) {
    if (!outcome.contains("phases")) continue;
    for (const json& phase : outcome["phases"]) {
      events.push_back({{"name", phase["phase"]},
                        {"ph", "X"},
                        {"pid", outcome["pid"]},
                        {"tid", 1},
                        {"ts", 1e6 * phase["start"].get<double>()},
                        {"dur", 1e6 * phase["seconds"].get<double>()},
                        {"args", {{"read", phase["read"]}, {"sent", phase["sent"]}}}});
    }
  }
  return events;
}

// Whatever stands in the way of one is no reason not to go on with the others.
json outcome_for(const json& session, const json& request) {
  Bar bar;
  json outcome;
  try {
    outcome = ask_session(session.value("pid", 0), request, [&](const json& progress) { bar.show(progress); });
  } catch (const std::exception& error) {
    outcome = {{"ok", false}, {"error", error.what()}};
  }
  outcome["pid"] = session["pid"];
  outcome["program"] = session["program"];
  return outcome;
}

int carry_out(const Options& options, const std::vector<json>& sessions) {
  json outcomes = json::array();
  int status = kDone;
  Trace trace{options.trace};
  if (!options.file.empty() && sessions.size() > 1)
    throw Problem{fmt::format("{} stands for {} programs, and a file is for one", options.session, sessions.size())};
  for (const json& session : sessions) {
    const pid_t pid = session.value("pid", 0);
    json outcome = outcome_for(session, request_for(options));
    if (!outcome.value("ok", false)) {
      fmt::print(stderr, "grus: {}[{}]: {}\n", session.value("program", ""), pid, outcome.value("error", ""));
      status = kFailed;
    } else if (!options.json && options.dry_run) {
      fmt::print("{}[{}] can move to {}: {} objects, {}\n", session.value("program", ""), pid,
                 outcome["plan"].value("destination", ""), outcome["plan"].value("objects", 0),
                 size_text(outcome["plan"].value("bytes", std::uint64_t{0})));
    } else if (!options.json) {
      print(session, outcome,
            options.command == "move" || options.command == "resume"
                ? fmt::format("moved to {}", outcome["plan"].value("destination", ""))
                : options.command + " done");
      for (const json& why : outcome.value("stays_loaded", json::array())) fmt::print("{}\n", why.get<std::string>());
    }
    for (const json& note : outcome.value("plan", json::object()).value("notes", json::array()))
      fmt::print(stderr, "grus: {}[{}]: {}\n", session.value("program", ""), pid, note.get<std::string>());
    outcomes.push_back(std::move(outcome));
  }
  if (options.json) fmt::print("{}\n", outcomes.dump(2));
  trace.write(outcomes);
  return status;
}

int carry_out(const Options& options) { return carry_out(options, sessions_meant(options.session)); }

int drain(const Options& options) {
  if (is_address(options.from) && absolute(options.from) == absolute(options.to))
    throw Problem{"what is at a server can't be moved off it to itself", kUsage};
  const auto sessions = sessions_at(options.from);
  if (sessions.empty() && !options.json) fmt::print("nothing of yours is at {}\n", options.from);
  return carry_out(options, sessions);
}

CLI::App* add(CLI::App& grus, const std::shared_ptr<Options>& options, const char* name, const char* about) {
  CLI::App* app = grus.add_subcommand(name, about);
  options->command = name;
  app->footer(kExamples);
  app->add_option("SESSION", options->session, "A process id, a name given with `grus run --name`, or `all`")
      ->required();
  app->add_flag("--json", options->json, "As JSON, for scripts");
  return app;
}

void add_trace_option(CLI::App& app, Options& options) {
  app.add_option("--trace", options.trace, "Write the timeline there, as chrome://tracing reads it")->type_name("FILE");
}

void add_max_stop_option(CLI::App& app, Options& options) {
  app.add_option("--max-stop", options.max_stop, "Refuse if results would have to wait longer than this")
      ->check(CLI::Range(1, 1000000))
      ->type_name("MS");
}

// For all that copies memory from one place to another.
void add_copy_options(CLI::App& app, Options& options) {
  app.add_option("--rounds", options.rounds, "Copy at most so often while the program runs; 0: only in the stop")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str()
      ->type_name("N");
  add_max_stop_option(app, options);
  app.add_option("--bandwidth", options.bandwidth, "Copy at most so much per second while the program runs: 500MB, 2GB")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber)
      ->type_name("BYTES");
  app.add_flag("--overlap,!--no-overlap", options.overlap, "Write at the destination while the source is read")
      ->default_str("on");
  add_trace_option(app, options);
  app.add_flag("--dry-run", options.dry_run, "Only say whether it could be done");
}

// For what changes while it is copied.
void add_comparison_options(CLI::App& app, Options& options) {
  app.add_option(
         "--fingerprint", options.fingerprint,
         "What tells whether a page has changed: xxh3 by the host, device by the device itself (default where it "
         "has memory of its own), system: the system's kernel notes which pages are written (where the device works "
         "in the program's memory, as PoCL does; else xxh3), xor256 by the host as in gMig. WARNING: xor256 misses "
         "changes, such as two "
         "blocks of 32 bytes that were swapped, and the program then goes on with wrong data")
      ->check(CLI::IsMember({"xxh3", "device", "system", "xor256"}))
      ->type_name("KIND");
  app.add_option("--sample", options.sample,
                 "In the stop, where the host compares, look at so many bytes of a page first: 0, 1, 2 or 4. If they "
                 "differ, it has changed and needs no fingerprint; if not, it is fingerprinted all the same")
      ->check(CLI::IsMember({0, 1, 2, 4}))
      ->capture_default_str()
      ->type_name("BYTES");
  app.add_option("--sample-at", options.sample_at, "Where in the page: head, tail or uniform")
      ->check(CLI::IsMember({"head", "tail", "uniform"}))
      ->capture_default_str()
      ->type_name("WHERE");
}

void add_place_options(CLI::App& app, Options& options, bool is_required) {
  app.add_option("--to", options.to, "unix:PATH, tcp:HOST:PORT, `local`, or part of a local device's name")
      ->required(is_required)
      ->type_name("WHERE");
  app.add_option("--device", options.device, "Part of the name of the device there, or PLATFORM:DEVICE by number")
      ->type_name("DEVICE");
}

}  // namespace

Subcommand add_move(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = add(grus, options, "move", "Move a running program to another device, here or at a server");
  add_place_options(*app, *options, true);
  add_copy_options(*app, *options);
  add_comparison_options(*app, *options);
  return {app, [options] { return carry_out(*options); }};
}

Subcommand add_drain(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  options->command = "move";
  CLI::App* app = grus.add_subcommand("drain", "Move everything of yours on this host off a device or a server");
  app->footer(kDrainExamples);
  app->add_option("FROM", options->from,
                  "unix:PATH, tcp:HOST:PORT, or a local device: part of its name, or PLATFORM:DEVICE by number")
      ->required();
  app->add_flag("--json", options->json, "As JSON, for scripts");
  add_place_options(*app, *options, true);
  add_copy_options(*app, *options);
  add_comparison_options(*app, *options);
  return {app, [options] { return drain(*options); }};
}

Subcommand add_suspend(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app =
      add(grus, options, "suspend", "Take everything of a program's off its device, into host memory or a file");
  app->add_option("-o,--file", options->file, "Keep it in this file until it is resumed, instead of in host memory")
      ->type_name("FILE");
  app->add_flag("--unload", options->unload, "Unload its drivers, too, until it is resumed");
  add_copy_options(*app, *options);
  add_comparison_options(*app, *options);
  return {app, [options] { return carry_out(*options); }};
}

Subcommand add_resume(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = add(grus, options, "resume", "Let a suspended program go on, where it was or elsewhere");
  add_place_options(*app, *options, false);
  add_copy_options(*app, *options);
  return {app, [options] { return carry_out(*options); }};
}

Subcommand add_checkpoint(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = add(grus, options, "checkpoint", "Write what a program's memory objects hold to a file; it goes on");
  app->add_option("-o,--output", options->file, "The file")->required()->type_name("FILE");
  add_copy_options(*app, *options);
  add_comparison_options(*app, *options);
  return {app, [options] { return carry_out(*options); }};
}

Subcommand add_restore(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = grus.add_subcommand("restore", "Put a program's memory objects back to a checkpoint of its own");
  options->command = "restore";
  app->add_option("FILE", options->file, "Written by `grus checkpoint`")->required()->check(CLI::ExistingFile);
  app->add_option("SESSION", options->session, "A process id, or a name given with `grus run --name`")->required();
  app->add_flag("--json", options->json, "As JSON, for scripts");
  add_max_stop_option(*app, *options);
  add_trace_option(*app, *options);
  return {app, [options] { return carry_out(*options); }};
}

Subcommand add_why(CLI::App& grus) {
  auto session = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* app = grus.add_subcommand("why", "Say what, if anything, makes a program immovable");
  app->add_option("SESSION", *session, "A process id, a name given with `grus run --name`, or `all`")->required();
  app->add_flag("--json", *as_json, "As JSON, for scripts");
  return {app, [session, as_json] {
            json all = json::array();
            for (const json& one : sessions_meant(*session)) {
              all.push_back({{"pid", one["pid"]},
                             {"name", one["name"]},
                             {"program", one["program"]},
                             {"at", one["at"]},
                             {"immovable", one["immovable"]}});
              if (*as_json) continue;
              const json& reasons = one["immovable"];
              fmt::print("{}[{}], at {}: {}\n", one.value("program", ""), one.value("pid", 0), one.value("at", ""),
                         reasons.empty() ? "can be moved" : "can't be moved");
              for (const json& reason : reasons) fmt::print("  {}\n", reason.get<std::string>());
            }
            if (*as_json) fmt::print("{}\n", all.dump(2));
            return kDone;
          }};
}

}  // namespace grus::cli
