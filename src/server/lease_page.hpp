// How a worker asks for a device and is given it: words that it shares with the server alone. A lease is known by its
// number; whoever writes a word is its only writer, and the server believes none that makes no sense.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace grus::server {

// What the server wants of a lease that it has given.
enum class Wish : std::uint32_t {
  nothing,
  when_idle,  // others wait: it is to come back as soon as there is nothing to do
  now,        // and once what was sent is done
};

struct LeasePage {
  static constexpr std::size_t kDevices = 32;
  using Word = std::atomic<std::uint32_t>;
  struct Device {
    // The worker's
    alignas(64) Word asked;
    Word returned;
    std::atomic<std::uint64_t> idle;  // ns for which there was nothing to do before the return
    // The server's
    alignas(64) Word granted;
    std::atomic<Wish> wish;
  };
  Device devices[kDevices];
};

// Returns when the word is another one, or somebody wakes, or the time is over; perhaps earlier.
template <typename Value>
void sleep_on(const std::atomic<Value>& word, Value value, std::chrono::nanoseconds limit = {}) {
  const timespec until{limit.count() / 1'000'000'000, limit.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, static_cast<std::uint32_t>(value), limit.count() == 0 ? nullptr : &until,
          nullptr, 0);
}

template <typename Value>
void change_and_wake(std::atomic<Value>& word, Value value) {
  word.store(value, std::memory_order_seq_cst);
  syscall(SYS_futex, &word, FUTEX_WAKE, 64, nullptr, nullptr, 0);
}

}  // namespace grus::server
