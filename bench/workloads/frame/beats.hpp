// A workload as it is seen from outside, while its machine is moved, say: every 10 ms it sends a datagram,
//   NAME kernels ticks longest-gap-between-kernels-us longest-gap-between-ticks-us
// of kernels that are done and of a clock that ticks every millisecond; gaps are by this machine's clock, since the
// last one.
#pragma once

#include <CL/cl.h>

#include <string>
#include <thread>

namespace workload {

class Beats {
 public:
  // HOST:PORT is who wants to know.
  Beats(const std::string& name, const std::string& address);
  ~Beats() = default;  // the last datagram is sent when all is counted
  Beats(const Beats&) = delete;
  Beats& operator=(const Beats&) = delete;

  // Counts the command when it is done; takes the event.
  static void count(cl_event kernel);

 private:
  std::jthread clock_;
};

}  // namespace workload
