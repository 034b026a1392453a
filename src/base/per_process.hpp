// What exists once in a process and starts over in a forked child: the child has none of the parent's threads, and its
// locks may have been held by one of them.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>

namespace grus {
namespace detail {

template <typename T>
struct PerProcess {
  static inline std::atomic<T*> current{nullptr};
  static inline T* parents = nullptr;  // in a forked child: never used, only kept reachable

  static void start_over() {
    parents = current.load(std::memory_order_relaxed);
    current.store(nullptr, std::memory_order_relaxed);
  }
};

}  // namespace detail

// Made on first use and never destroyed: threads may be at it when the process exits.
template <typename T>
T& of_this_process() {
  using Instance = detail::PerProcess<T>;
  T* known = Instance::current.load(std::memory_order_acquire);
  if (known) return *known;
  static std::atomic<bool> watching{false};
  if (!watching.exchange(true)) pthread_atfork(nullptr, nullptr, &Instance::start_over);
  auto mine = std::make_unique<T>();
  if (!Instance::current.compare_exchange_strong(known, mine.get(), std::memory_order_acq_rel)) return *known;
  return *mine.release();
}

}  // namespace grus
