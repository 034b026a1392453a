// A lock for the few instructions that guard one object's fields, where a mutex would cost more than the work.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>

namespace grus {

class SpinLock {
 public:
  void lock() {
    for (int turn = 0; locked_.exchange(true, std::memory_order_acquire); ++turn) {
      if (turn > kTurnsBeforeSleep) {
        usleep(kSleep);  // whoever has it is in a driver that compiles
      } else if (turn > kTurnsBeforeYield) {
        sched_yield();
      }
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  static constexpr int kTurnsBeforeYield = 64;
  static constexpr int kTurnsBeforeSleep = 1024;
  static constexpr int kSleep = 100;  // microseconds
  std::atomic<bool> locked_{false};
};

}  // namespace grus
