// A part of a test in a process of its own, with a limit on its time, and what became of it.
#pragma once

#include <chrono>
#include <functional>
#include <ostream>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace grus::test {

inline constexpr std::chrono::seconds kLongEnough{100};  // even on a very busy machine; only a hang takes longer

struct Ended {
  int status = -1;  // if it ended by itself
  int signal = 0;   // if a signal ended it
  bool in_time = true;
  std::string output;
  std::string errors;

  bool exited_with(int wanted) const { return in_time && signal == 0 && status == wanted; }
  bool said(std::string_view text) const { return errors.find(text) != std::string::npos; }
};
std::ostream& operator<<(std::ostream& stream, const Ended& ended);

// The body runs in a forked child, which then exits with 0. The tests themselves never touch OpenCL, so that each child
// starts as a fresh program does.
Ended in_child(const std::function<void()>& body, std::chrono::milliseconds limit = kLongEnough);
// For bodies: becomes another program, found as a shell would.
[[noreturn]] void become(const std::vector<std::string>& command);

// For bodies, where GoogleTest can't tell: ends the process at once if it doesn't hold, with a status of its own.
inline constexpr int kWrong = 99;
void require(bool holds, std::string_view what, std::source_location where = std::source_location::current());

// Waits for a process that a body has forked; false if it hangs (then it is killed) or ends otherwise than with 0.
bool ended_well(int process, std::chrono::milliseconds limit = kLongEnough);

}  // namespace grus::test
