#include "command/gate.hpp"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace grus {
namespace {

long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

// Spins briefly, then lets others run: those waited for are in the middle of a call.
template <typename Done>
void wait_until(Done done) {
  for (int turn = 0; !done(); ++turn) {
    if (turn > 100) std::this_thread::yield();
  }
}

}  // namespace

constinit thread_local Gate::Thread* Gate::t_thread = nullptr;

constinit Gate g_gate;
constinit std::atomic<std::uint32_t> Gate::g_state{Gate::kFence};

Gate::Thread* Gate::register_thread() {
  // A record is given back when its thread ends, for the next thread.
  static const pthread_key_t key = [] {
    pthread_key_t created{};
    pthread_key_create(&created, [](void* record) {
      auto* thread = static_cast<Thread*>(record);
      if (t_thread == thread) t_thread = nullptr;
      thread->place.store(Place::outside, std::memory_order_release);
      thread->used.store(false, std::memory_order_release);
    });
    return created;
  }();
  static std::once_flag registered;
  std::call_once(registered, [] {
    if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) g_state.fetch_and(~kFence);
  });
  Thread* thread = nullptr;
  for (Thread* record = threads_.load(std::memory_order_acquire); record; record = record->next) {
    bool used = false;
    if (record->used.compare_exchange_strong(used, true, std::memory_order_acquire)) {
      thread = record;
      break;
    }
  }
  if (!thread) {
    thread = new Thread;
    thread->next = threads_.load(std::memory_order_relaxed);
    while (!threads_.compare_exchange_weak(thread->next, thread, std::memory_order_seq_cst)) {
    }
  }
  pthread_setspecific(key, thread);
  t_thread = thread;
  return thread;
}

void Gate::pass_slowly(Thread* thread) {
  for (;;) {
    const std::uint32_t state = g_state.load(std::memory_order_seq_cst);
    if (!(state & kClosed)) {
      if (!(state & kFence)) return;
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (!(g_state.load(std::memory_order_seq_cst) & kClosed)) return;
    }
    thread->place.store(Place::outside, std::memory_order_release);
    g_state.wait(state | kClosed, std::memory_order_acquire);
    thread->place.store(Place::inside, std::memory_order_seq_cst);
  }
}

void Gate::order_against_those_entering() const {
  if (g_state.load(std::memory_order_relaxed) & kFence) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  }
}

Gate::Closed::Closed(Gate& gate)
    : gate_{gate},
      closing_{gate.closing_},
      thread_{t_thread ? t_thread : gate.register_thread()},
      before_{thread_->place.load(std::memory_order_relaxed)} {
  Gate::g_state.fetch_or(kClosed, std::memory_order_seq_cst);
  gate_.order_against_those_entering();
  for (Thread* thread = gate_.threads_.load(std::memory_order_acquire); thread; thread = thread->next) {
    wait_until([&] { return thread->place.load(std::memory_order_acquire) != Place::inside; });
  }
  thread_->place.store(Place::inside, std::memory_order_relaxed);
}

Gate::Closed::~Closed() {
  thread_->place.store(before_, std::memory_order_release);
  Gate::g_state.fetch_and(~kClosed, std::memory_order_release);
  Gate::g_state.notify_all();
}

void Gate::wait_for_those_inside() {
  order_against_those_entering();
  for (Thread* thread = threads_.load(std::memory_order_acquire); thread; thread = thread->next) {
    wait_until([&] { return thread->place.load(std::memory_order_acquire) != Place::inside; });
  }
}

bool Gate::wait_for_those_working(std::chrono::steady_clock::time_point deadline) {
  bool done = true;
  for (Thread* thread = threads_.load(std::memory_order_acquire); thread; thread = thread->next) {
    wait_until([&] {
      if (thread->place.load(std::memory_order_acquire) != Place::working) return true;
      done = std::chrono::steady_clock::now() < deadline;
      return !done;
    });
    if (!done) return false;
  }
  return true;
}

std::array<std::uint64_t, kMostCalls> Gate::calls() const {
  std::array<std::uint64_t, kMostCalls> sum{};
  for (Thread* thread = threads_.load(std::memory_order_acquire); thread; thread = thread->next) {
    for (std::size_t call = 0; call < kMostCalls; ++call)
      sum[call] += thread->calls[call].load(std::memory_order_relaxed);
  }
  return sum;
}

void Gate::forget_other_threads() {
  for (Thread* thread = threads_.load(std::memory_order_acquire); thread; thread = thread->next) {
    if (thread == t_thread) continue;
    thread->place.store(Place::outside, std::memory_order_relaxed);
    thread->used.store(false, std::memory_order_relaxed);
  }
  if (!(g_state.load(std::memory_order_relaxed) & kFence)) membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  g_state.fetch_and(~kClosed, std::memory_order_relaxed);
}

}  // namespace grus
