#include "frame/workload.hpp"

#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "frame/study.hpp"

namespace workload {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  bench::Choice choice;
  size_t size = 0;
  unsigned iterations = 0;
  double seconds = 0;
  unsigned study = 0;
  std::string beats;
  bool quick = false;
  bool tell = false;
  bool verify = true;
};

Options parse(CLI::App& app, int argc, char** argv, const About& about) {
  Options options;
  app.add_option("--platform", options.choice.platform, "part of the platform's name");
  app.add_option("--device", options.choice.device, "part of the device's name");
  app.add_option("--size", options.size, fmt::format("{}; {} unless told", about.size_is, about.size))
      ->check(CLI::PositiveNumber);
  app.add_option("--iterations", options.iterations,
                 fmt::format("rounds of the work; {} unless told", about.iterations))
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "rounds for that long, instead of a number of them")
      ->check(CLI::PositiveNumber);
  app.add_flag("--quick", options.quick, fmt::format("a small problem: --size {}", about.quick_size));
  app.add_option("--study", options.study,
                 "see which pages of the buffers change in each of so many intervals of the run; 0: don't");
  app.add_flag("--tell", options.tell, "print the number of each round when it is done");
  app.add_option("--beats", options.beats,
                 "HOST:PORT to which it sends, every 10 ms, how it gets on; see frame/beats.hpp");
  app.add_flag("!--no-verify", options.verify, "compute nothing on the CPU; only the checksum can tell");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  if (options.size == 0) options.size = options.quick ? about.quick_size : about.size;
  if (options.iterations == 0) options.iterations = about.iterations;
  return options;
}

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// How many rounds were made.
unsigned iterate(Workload& workload, Frame& frame, const Options& options, Study& study) {
  const auto start = Clock::now();
  unsigned done = 0;
  while (options.seconds > 0 ? since(start) < options.seconds : done < options.iterations) {
    workload.iterate(frame);
    ++done;
    if (options.seconds > 0 || options.tell) frame.finish();  // else the queue would grow beyond the time
    if (options.tell) {
      fmt::print("{}\n", done);
      std::fflush(stdout);
    }
    if (options.study != 0 && done % std::max(1U, options.iterations / options.study) == 0) study.look(frame);
  }
  frame.finish();
  return done;
}

nlohmann::json times_of(const Frame& frame, double total) {
  nlohmann::json times;
  double calls = 0;
  for (size_t phase = 0; phase < kPhaseNames.size(); ++phase) {
    const double seconds = frame.seconds(static_cast<Phase>(phase));
    times[kPhaseNames[phase]] = seconds;
    calls += seconds;
  }
  times["setup"] = frame.seconds(Phase::init) + frame.seconds(Phase::allocate);
  times["transfer"] = frame.seconds(Phase::to_device) + frame.seconds(Phase::from_device);
  times["calls"] = calls;
  times["total"] = total;
  return times;
}

void run(const Options& options, const About& about, const std::function<std::unique_ptr<Workload>(size_t)>& make) {
  auto workload = make(options.size);
  const auto start = Clock::now();
  Frame frame{options.choice};
  workload->prepare(frame);
  Study study;
  if (options.study != 0) study.look(frame);
  std::optional<Beats> beats;
  if (!options.beats.empty()) {
    frame.count_kernels();
    beats.emplace(about.name, options.beats);
  }
  const unsigned iterations = iterate(*workload, frame, options, study);
  workload->collect(frame);
  beats.reset();
  const double before_close = since(start);
  Checksum checksum;
  workload->add_to(checksum);
  if (options.verify) workload->verify();
  const auto closing = Clock::now();
  frame.timed(Phase::close, [&] { workload.reset(); });
  nlohmann::json line{{"workload", about.name},     {"device", frame.name()},
                      {"size", options.size},       {"iterations", iterations},
                      {"verified", options.verify}, {"seconds", times_of(frame, before_close + since(closing))}};
  for (const auto& [name, value] : frame.reported()) line[name] = value;
  if (options.study != 0) line["study"] = study.as_json();
  fmt::print("{}\nchecksum {:016x}\n", line.dump(), checksum.value());
}

}  // namespace

int run_workload(int argc, char** argv, const About& about,
                 const std::function<std::unique_ptr<Workload>(size_t size)>& make,
                 const std::function<void(CLI::App& app)>& add_options) {
  CLI::App app{about.what, about.name};
  if (add_options) add_options(app);
  const Options options = parse(app, argc, argv, about);
  try {
    run(options, about, make);
    return 0;
  } catch (const Wrong& wrong) {
    fmt::print(stderr, "{}: wrong result: {}\n", about.name, wrong.what());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", about.name, error.what());
    return 2;
  }
}

void expect_close(const char* what, std::span<const float> results, std::span<const float> expected, double relative,
                  double absolute) {
  if (results.size() != expected.size())
    throw Wrong(fmt::format("{}: {} values instead of {}", what, results.size(), expected.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    const double error = std::abs(double{results[i]} - double{expected[i]});
    if (!(error <= absolute) && !(error <= relative * std::abs(double{expected[i]})))
      throw Wrong(fmt::format("{}[{}] is {}, not {}", what, i, results[i], expected[i]));
  }
}

void expect_near(const char* what, size_t index, double result, double expected, double bound) {
  if (!(std::abs(result - expected) <= bound))
    throw Wrong(fmt::format("{}[{}] is {}, not {}", what, index, result, expected));
}

void expect_same(const char* what, std::span<const std::uint32_t> results, std::span<const std::uint32_t> expected) {
  if (results.size() != expected.size())
    throw Wrong(fmt::format("{}: {} values instead of {}", what, results.size(), expected.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] != expected[i]) throw Wrong(fmt::format("{}[{}] is {}, not {}", what, i, results[i], expected[i]));
  }
}

}  // namespace workload
