#include "frame/beats.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "opencl.hpp"

namespace workload {
namespace {

using Clock = std::chrono::steady_clock;

// The longest time between two events since it was last asked, the one that is under way included.
class Gap {
 public:
  void event() {
    const std::lock_guard lock{mutex_};
    const auto now = Clock::now();
    longest_ = std::max(longest_, now - last_);
    last_ = now;
    ++count_;
  }
  struct Seen {
    unsigned long count;
    long longest_us;
  };
  Seen take() {
    const std::lock_guard lock{mutex_};
    const auto longest = std::max(longest_, Clock::now() - last_);
    longest_ = {};
    return {count_, std::chrono::duration_cast<std::chrono::microseconds>(longest).count()};
  }

 private:
  std::mutex mutex_;  // guards all of it
  Clock::time_point last_ = Clock::now();
  Clock::duration longest_{};
  unsigned long count_ = 0;
};

Gap g_kernels;  // here, since a callback may come late

int connected_socket(const std::string& address) {
  const auto colon = address.rfind(':');
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (colon == std::string::npos ||
      getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0)
    throw bench::Failure("no such address: " + address);
  const int socket = ::socket(found->ai_family, found->ai_socktype, 0);
  const bool connected = socket >= 0 && connect(socket, found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  if (!connected) throw bench::Failure("can't send to " + address);
  return socket;
}

void tell(int socket, const std::string& name, Gap& ticks) {
  const auto [kernel_count, kernel_gap] = g_kernels.take();
  const auto [tick_count, tick_gap] = ticks.take();
  char line[200];
  const int size = std::snprintf(line, sizeof line, "%s %lu %lu %ld %ld", name.c_str(), kernel_count, tick_count,
                                 kernel_gap, tick_gap);
  (void)send(socket, line, std::min(static_cast<std::size_t>(size), sizeof line), 0);
}

void tick(const std::stop_token& stop, int socket, const std::string& name) {
  Gap ticks;
  for (unsigned next = 1; !stop.stop_requested(); ++next) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    ticks.event();
    if (next % 10 == 0) tell(socket, name, ticks);
  }
  tell(socket, name, ticks);
  close(socket);
}

}  // namespace

Beats::Beats(const std::string& name, const std::string& address)
    : clock_{[name, socket = connected_socket(address)](const std::stop_token& stop) { tick(stop, socket, name); }} {}

void Beats::count(cl_event kernel) {
  bench::check(clSetEventCallback(
                   kernel, CL_COMPLETE, [](cl_event, cl_int, void*) { g_kernels.event(); }, nullptr),
               "clSetEventCallback");
  bench::check(clReleaseEvent(kernel), "clReleaseEvent");
}

}  // namespace workload
