#include "move/under_way.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>

#include "move/transplant.hpp"

namespace grus::move {
namespace {

constexpr auto kExitWaits = std::chrono::seconds{5};  // a build may take long

std::timed_mutex& g_only = *new std::timed_mutex;
std::atomic<bool> g_is_exiting{false};
std::atomic<pid_t> g_process{0};

void give_up() {
  if (getpid() != g_process || g_is_exiting.exchange(true)) return;
  (void)g_only.try_lock_for(kExitWaits);  // for good: nothing begins any more
}

// Exit handlers run in the reverse of their order, so a driver that is just being loaded would come before ours. What
// belongs to the thread that calls exit goes first of all; the first thread's goes only then.
struct FirstAtExit {
  ~FirstAtExit() {
    if (gettid() == getpid()) give_up();
  }
  bool is_there = false;
};
thread_local FirstAtExit t_first_at_exit;

}  // namespace

UnderWay::UnderWay() : only_{g_only, std::try_to_lock} {
  if (!only_)
    throw Refused{is_exiting() ? "the program is ending" : "something else is under way with it: wait, or cancel that"};
  static const bool is_registered = std::atexit(give_up) == 0;  // for exits by other threads
  (void)is_registered;
}

void wait_at_exit() {
  g_process = getpid();
  t_first_at_exit.is_there = true;
}

bool is_exiting() { return g_is_exiting; }

}  // namespace grus::move
