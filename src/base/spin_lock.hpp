// A lock for the few instructions that guard one object's fields, where a mutex would cost more than the work.
#pragma once

#include <sched.h>

#include <atomic>

namespace grus {

class SpinLock {
 public:
  void lock() {
    for (int turn = 0; locked_.exchange(true, std::memory_order_acquire); ++turn) {
      if (turn > kTurnsBeforeYield) sched_yield();
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  static constexpr int kTurnsBeforeYield = 64;
  std::atomic<bool> locked_{false};
};

}  // namespace grus
