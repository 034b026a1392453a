// Starting the program of `grus run`.
#pragma once

#include <string>
#include <vector>

namespace grus::cli {

// Becomes the program. Returns only if that fails: with errno.
int become(const std::vector<std::string>& program);

struct Ended {
  int exec_error = 0;   // errno, if the program couldn't be started
  int exit_status = 0;  // if it ended by itself
  int signal = 0;       // if a signal ended it
};
// Runs the program to its end and hands it the signals that are sent to this process.
Ended run_to_end(const std::vector<std::string>& program);

// Ends this process as the program was ended, so that a shell sees the same.
[[noreturn]] void die_by(int signal);

}  // namespace grus::cli
