// Every API call passes the gate. While it is open that costs a store and a load of a thread's own record; whoever
// closes it pays for both sides with membarrier, and waits until no thread is inside.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>

namespace grus {

// The entry points of OpenCL, listed by the API (src/api/call.hpp); here they are only counted.
enum class Call : std::uint16_t;
inline constexpr std::size_t kMostCalls = 160;
// What Grus's own threads enter with: objects are only ever destroyed inside the gate.
inline constexpr Call kInternalCall{kMostCalls - 1};

class Gate {
 public:
  enum class Place : std::uint32_t {
    outside,
    inside,   // between entry and return of an API call
    waiting,  // in an API call that waits for the device, outside the gate
    working,  // the same, but the call itself is a command that the device is yet to finish
  };

  struct alignas(64) Thread {
    std::atomic<Place> place{Place::outside};
    std::atomic<bool> used{true};
    Thread* next = nullptr;
    std::array<std::atomic<std::uint64_t>, kMostCalls> calls{};
  };

  // Keeps the calling thread inside for its lifetime.
  class Entry {
   public:
    explicit Entry(Call call);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    Thread* thread_;
    Place before_;  // the gate is re-entrant: a command that waits may run the program's code on its thread
  };

  // The same in two halves, for the path of a call: nothing is kept from one to the other. If the first says no, the
  // call goes through an Entry.
  static bool enter_quickly(Call call) {
    Thread* thread = t_thread;
    if (!thread || thread->place.load(std::memory_order_relaxed) != Place::outside) [[unlikely]]
      return false;
    thread->place.store(Place::inside, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the closer's membarrier does the rest
    if (g_state.load(std::memory_order_acquire) != 0) [[unlikely]] {
      thread->place.store(Place::outside, std::memory_order_release);
      return false;
    }
    count(*thread, call);
    return true;
  }
  static void leave_quickly() { t_thread->place.store(Place::outside, std::memory_order_release); }

  // Lets the calling thread, which is inside, wait outside; it comes back in when this ends.
  class Leave {
   public:
    explicit Leave(Place place);
    ~Leave();
    Leave(const Leave&) = delete;
    Leave& operator=(const Leave&) = delete;

   private:
    Thread* thread_;
  };

  // The gate is closed for the lifetime of this: no thread is inside but the one that closed it.
  class Closed {
   public:
    explicit Closed(Gate& gate);
    ~Closed();
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    Gate& gate_;
    std::unique_lock<std::mutex> closing_;
    Thread* thread_;
    Place before_;
  };

  constexpr Gate() = default;

  // Returns when every thread that was inside has been outside or waiting at least once.
  void wait_for_those_inside();
  // Returns when no thread is working, or at the deadline: false then.
  bool wait_for_those_working(std::chrono::steady_clock::time_point deadline);
  // Calls so far, over all threads.
  std::array<std::uint64_t, kMostCalls> calls() const;
  void forget_other_threads();  // in a forked child

 private:
  static constexpr std::uint32_t kClosed = 1;
  static constexpr std::uint32_t kFence = 2;  // no membarrier here: whoever enters pays too

  Thread* register_thread();
  static void count(Thread& thread, Call call) {
    auto& calls = thread.calls[static_cast<std::size_t>(call)];
    calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void pass(Thread* thread);
  void pass_slowly(Thread* thread);
  void order_against_those_entering() const;

  // What a thread looks at on its way in; 0 is the common case, once the first thread has registered with membarrier.
  static constinit std::atomic<std::uint32_t> g_state;
  std::mutex closing_;  // one closer at a time
  std::atomic<Thread*> threads_{nullptr};

  static constinit thread_local Thread* t_thread __attribute__((tls_model("initial-exec")));
};

inline void Gate::pass(Thread* thread) {
  thread->place.store(Place::inside, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the closer's membarrier does the rest
  if (g_state.load(std::memory_order_acquire) != 0) [[unlikely]]
    pass_slowly(thread);
}

extern Gate g_gate;  // has no destructor: threads may be inside at exit

inline Gate::Entry::Entry(Call call) : thread_{t_thread} {
  if (!thread_) [[unlikely]]
    thread_ = g_gate.register_thread();
  before_ = thread_->place.load(std::memory_order_relaxed);
  if (before_ != Place::inside) g_gate.pass(thread_);
  count(*thread_, call);
}

inline Gate::Entry::~Entry() { thread_->place.store(before_, std::memory_order_release); }

inline Gate::Leave::Leave(Place place) : thread_{t_thread} { thread_->place.store(place, std::memory_order_release); }

inline Gate::Leave::~Leave() { g_gate.pass(thread_); }

}  // namespace grus
