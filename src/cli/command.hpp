// The `grus` command: its subcommands, and how they end.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace grus::cli {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  // `grus run` otherwise ends as the program does; these are what env(1) and nohup(1) answer.
  kCannotRun = 125,
  kNotExecutable = 126,
  kNotFound = 127,
};

// Ends the command with a message and an exit status.
struct Problem : std::runtime_error {
  explicit Problem(const std::string& message, ExitCode code = kFailed)
      : std::runtime_error{message}, exit_code{code} {}
  ExitCode exit_code;
};

struct Subcommand {
  CLI::App* app;
  std::function<int()> run;
};

// What follows the first `--` of the command line is never looked at here: it is the program and its arguments.
Subcommand add_run(CLI::App& grus, const std::vector<std::string>& after_dashes);
Subcommand add_info(CLI::App& grus);
Subcommand add_enable(CLI::App& grus);
Subcommand add_disable(CLI::App& grus);

}  // namespace grus::cli
