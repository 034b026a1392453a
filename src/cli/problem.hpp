// How the `grus` command ends.
#pragma once

#include <stdexcept>
#include <string>

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

}  // namespace grus::cli
