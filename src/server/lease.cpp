#include "server/lease.hpp"

#include "base/thread.hpp"

namespace grus::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kLinger = 400us;  // for a client that waits for each command to send the next, while others wait
constexpr auto kIdle = 10ms;     // and while nobody does

}  // namespace

Lease::Lease(LeasePage::Device& page, std::function<void()> tell_server)
    : page_{page}, tell_server_{std::move(tell_server)} {}

void Lease::take() {
  const std::lock_guard lock{mutex_};
  if (is_open()) return;
  if (number_ == 0) start_thread("grus-lease", [this] { keep(); }).detach();
  page_.asked.store(++number_, std::memory_order_seq_cst);
  tell_server_();
  for (std::uint32_t granted = 0; (granted = page_.granted.load()) != number_;) sleep_on(page_.granted, granted);
  open();
  change_and_wake(held_, number_);
}

void Lease::keep() {
  for (;;) {
    while (held_.load() == 0) sleep_on(held_, 0U);
    keep_one();
  }
}

// Until it is given back.
void Lease::keep_one() {
  for (;;) {
    const std::uint64_t before = sent();
    Wish wish = page_.wish.load();
    if (wish == Wish::nothing) sleep_on(page_.wish, wish, kIdle);
    wish = page_.wish.load();
    if (wish == Wish::now) return give_back(0ns);
    if (wish == Wish::when_idle && linger()) return give_back(page_.wish.load() == Wish::now ? 0ns : kLinger);
    if (wish == Wish::nothing && sent() == before && is_idle()) return give_back(kIdle);
  }
}

// Whether there is nothing to do, and nothing comes.
bool Lease::linger() {
  const std::uint64_t done = wait_for_sent();
  if (page_.wish.load() == Wish::now) return true;
  if (sent() == done) sleep_on(page_.wish, Wish::when_idle, kLinger);
  return sent() == done;
}

// Who wants it meanwhile asks for the next one.
void Lease::give_back(std::chrono::nanoseconds idle) {
  const std::lock_guard lock{mutex_};
  stop();
  page_.idle.store(static_cast<std::uint64_t>(idle.count()), std::memory_order_relaxed);
  held_.store(0);
  page_.returned.store(number_, std::memory_order_seq_cst);
  tell_server_();
}

}  // namespace grus::server
