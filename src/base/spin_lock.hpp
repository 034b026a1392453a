// A lock of one word, for fields of one object, where a mutex would cost more than the work. It spins briefly and then
// sleeps: whoever has it may be in a driver that compiles.
#pragma once

#include <atomic>
#include <cstdint>

namespace grus {

class SpinLock {
 public:
  void lock() {
    int free = kFree;
    if (!state_.compare_exchange_strong(free, kTaken, std::memory_order_acquire)) [[unlikely]]
      lock_slowly();
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kWaitedFor) [[unlikely]]
      state_.notify_one();
  }

 private:
  static constexpr int kFree = 0;
  static constexpr int kTaken = 1;
  static constexpr int kWaitedFor = 2;
  static constexpr int kTurns = 64;

  [[gnu::noinline]] void lock_slowly() {
    for (int turn = 0; turn < kTurns; ++turn) {
      int free = kFree;
      if (state_.compare_exchange_weak(free, kTaken, std::memory_order_acquire)) return;
    }
    while (state_.exchange(kWaitedFor, std::memory_order_acquire) != kFree)
      state_.wait(kWaitedFor, std::memory_order_relaxed);
  }

  std::atomic<int> state_{kFree};
};

}  // namespace grus
