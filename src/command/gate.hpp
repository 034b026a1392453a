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
    std::uint32_t depth = 0;  // the gate is re-entrant
    std::atomic<std::uint32_t> visits{0};  // how often it came in
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
  };

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

  // The gate is closed for the lifetime of this: no thread is inside.
  class Closed {
   public:
    explicit Closed(Gate& gate);
    ~Closed();
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    Gate& gate_;
    std::unique_lock<std::mutex> closing_;
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
  void pass(Thread* thread);
  void pass_slowly(Thread* thread);
  void order_against_those_entering() const;

  // What a thread looks at on its way in; 0 is the common case, once the first thread has registered with membarrier.
  std::atomic<std::uint32_t> state_{kFence};
  std::mutex closing_;  // one closer at a time
  std::atomic<Thread*> threads_{nullptr};

  static thread_local Thread* t_thread __attribute__((tls_model("initial-exec")));
};

inline void Gate::pass(Thread* thread) {
  thread->visits.store(thread->visits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  thread->place.store(Place::inside, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the closer's membarrier does the rest
  if (state_.load(std::memory_order_acquire) != 0) [[unlikely]] pass_slowly(thread);
}

extern Gate g_gate;  // has no destructor: threads may be inside at exit

inline Gate::Entry::Entry(Call call) : thread_{t_thread} {
  if (!thread_) [[unlikely]] thread_ = g_gate.register_thread();
  if (thread_->depth++ == 0) g_gate.pass(thread_);
  auto& count = thread_->calls[static_cast<std::size_t>(call)];
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

inline Gate::Entry::~Entry() {
  if (--thread_->depth == 0) thread_->place.store(Place::outside, std::memory_order_release);
}

inline Gate::Leave::Leave(Place place) : thread_{t_thread} { thread_->place.store(place, std::memory_order_release); }

inline Gate::Leave::~Leave() { g_gate.pass(thread_); }

}  // namespace grus
