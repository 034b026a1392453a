#include "channel/ring.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace grus::channel {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Of who would have to be woken by a byte: that costs far more than a look. The longer it has waited, the longer it
// can.
constexpr auto kShortestNap = 50us;
constexpr auto kLongestNap = 1ms;
constexpr int kNapsToDouble = 8;
constexpr auto kNapsFor = 20ms;
constexpr std::uint8_t kLook = 'l';
constexpr std::uint8_t kEnds = 'e';

void signal(int waker) {
  const std::uint64_t one = 1;
  (void)!write(waker, &one, sizeof one);
}

void clear(int waker) {
  std::uint64_t count = 0;
  (void)!read(waker, &count, sizeof count);
}

Descriptor make_waker() { return Descriptor{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}; }

timespec timespec_of(std::chrono::nanoseconds time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return {seconds.count(), (time - seconds).count()};
}

}  // namespace

RingStream::Wakers RingStream::Wakers::make() { return {make_waker(), make_waker(), make_waker(), make_waker()}; }

RingStream::Wakers RingStream::Wakers::make_own(Side side) {
  if (side == Side::server) return {make_waker(), {}, {}, make_waker()};
  return {{}, make_waker(), make_waker(), {}};
}

RingStream::RingStream(Side side, std::shared_ptr<SharedMemory> memory, Wakers wakers, Descriptor socket)
    : side_{side},
      memory_{std::move(memory)},
      wakers_{std::move(wakers)},
      wakes_by_bytes_{wakers_.to_server.get() < 0 || wakers_.to_client.get() < 0},
      socket_{std::move(socket)} {
  auto* const states = reinterpret_cast<RingState*>(memory_->rings());
  std::byte* const data = memory_->rings() + 2 * sizeof(RingState);
  out_ = {&states[0], data, wakers_.to_server.get(), wakers_.room_to_server.get()};
  in_ = {&states[1], data + kRingSize, wakers_.to_client.get(), wakers_.room_to_client.get()};
  if (side == Side::server) std::swap(out_, in_);
}

bool RingStream::send_byte(std::uint8_t byte) const {
  return ::send(socket_.get(), &byte, sizeof byte, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof byte;
}

// A byte that finds no room isn't needed: there are others on their way, and each of them makes the other side look.
void RingStream::wake(std::atomic<std::uint32_t>& sleeps, int waker) {
  if (sleeps.load(std::memory_order_seq_cst) == 0 || sleeps.exchange(0) == 0) return;
  if (wakes_by_bytes_) {
    send_byte(kLook);
  } else {
    signal(waker);
  }
}

std::uint64_t RingStream::data_in() const {
  const std::uint64_t there = in_.state->put.load(std::memory_order_seq_cst) - got_;
  if (there > kRingSize) throw Lost{"the other side wrote nonsense into the channel"};
  return there;
}

bool RingStream::has_data() const { return in_.state->put.load(std::memory_order_seq_cst) != got_; }

// Half a ring: a producer that is woken for every byte would do little else.
bool RingStream::has_room() const { return put_ - out_.state->got.load(std::memory_order_seq_cst) <= kRingSize / 2; }

void RingStream::send_some(std::span<iovec>& parts) {
  std::uint64_t put = put_.load(std::memory_order_relaxed);
  const std::uint64_t taken = put - out_.state->got.load(std::memory_order_acquire);
  if (taken > kRingSize) throw Lost{"the other side wrote nonsense into the channel"};
  std::size_t room = kRingSize - taken;
  std::size_t sent = 0;
  for (const iovec& part : parts) {
    const auto* from = static_cast<const std::byte*>(part.iov_base);
    std::size_t left = std::min(part.iov_len, room);
    room -= left;
    sent += left;
    while (left != 0) {
      const std::size_t at = put % kRingSize;
      const std::size_t piece = std::min(left, kRingSize - at);
      std::memcpy(out_.data + at, from, piece);
      put += piece;
      from += piece;
      left -= piece;
    }
    if (room == 0) break;
  }
  if (sent == 0) return;
  put_.store(put, std::memory_order_relaxed);
  out_.state->put.store(put, std::memory_order_seq_cst);
  wake(out_.state->consumer_sleeps, out_.data_waker);
  skip(parts, sent);
}

std::size_t RingStream::receive_some(void* to, std::size_t size) {
  const std::size_t taken = std::min<std::size_t>(size, data_in());
  std::uint64_t got = got_.load(std::memory_order_relaxed);
  auto* next = static_cast<std::byte*>(to);
  for (std::size_t left = taken; left != 0;) {
    const std::size_t at = got % kRingSize;
    const std::size_t piece = std::min(left, kRingSize - at);
    std::memcpy(next, in_.data + at, piece);
    got += piece;
    next += piece;
    left -= piece;
  }
  if (taken == 0) {
    clear(in_.data_waker);
    if (ended_ && !has_data()) throw Lost{"the connection was closed"};
    return 0;
  }
  got_.store(got, std::memory_order_relaxed);
  in_.state->got.store(got, std::memory_order_seq_cst);
  if (in_.state->put.load(std::memory_order_relaxed) - got <= kRingSize / 2)
    wake(in_.state->producer_sleeps, in_.room_waker);
  return taken;
}

void RingStream::spin(const Wish& wish) const {
  if (spin_.count() == 0) return;
  const auto end = Clock::now() + (wish.limit ? std::min(*wish.limit, spin_) : spin_);
  while (!is_ready(wish) && Clock::now() < end) __builtin_ia32_pause();
}

RingStream::Polled RingStream::poll_for(const Wish& wish, const std::optional<std::chrono::nanoseconds>& limit) {
  const auto from_socket = static_cast<short>(wakes_by_bytes_ ? POLLIN | POLLRDHUP : POLLRDHUP);
  pollfd ready[4] = {{wish.in ? in_.data_waker : -1, POLLIN, 0},
                     {wish.out ? out_.room_waker : -1, POLLIN, 0},
                     {wish.in || wish.out || wish.ends ? socket_.get() : -1, from_socket, 0},
                     {wish.also, POLLIN, 0}};
  const timespec time = timespec_of(limit.value_or(0ns));
  if (ppoll(ready, 4, limit ? &time : nullptr, nullptr) <= 0) return {};
  if (ready[2].revents & POLLIN) take_bytes();
  if (ready[2].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) ended_ = true;
  return {ready[0].revents != 0, ready[3].revents != 0};
}

// Whoever else waits must not miss what they say.
void RingStream::take_bytes() {
  std::uint8_t bytes[256];
  const ssize_t size = recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (size <= 0) return;  // its end is seen by who polls
  if (std::find(bytes, bytes + size, kEnds) != bytes + size) ended_ = true;
  signal(in_.data_waker);
  signal(out_.room_waker);
}

// True if there is no need to sleep.
bool RingStream::nap(const Wish& wish) {
  using std::chrono::nanoseconds;
  const auto start = Clock::now();
  const nanoseconds most = wish.limit ? std::min<nanoseconds>(*wish.limit, kNapsFor) : kNapsFor;
  while (!is_ready(wish) && !ended_) {
    const nanoseconds waited = Clock::now() - start;
    if (waited >= most) return wish.limit && *wish.limit <= kNapsFor;
    const auto time = std::clamp<nanoseconds>(waited / kNapsToDouble, kShortestNap, kLongestNap);
    if (poll_for({.also = wish.also, .ends = true}, std::min(time, most - waited)).also) return true;
  }
  return true;
}

// It was for data that another thread has taken. Whoever still sleeps may not even have seen it, and must be woken for
// the next.
void RingStream::drop_stale_wake() {
  if (has_data() || ended_) return;
  clear(in_.data_waker);
  in_.state->consumer_sleeps.store(1, std::memory_order_seq_cst);
  if (has_data() || ended_) signal(in_.data_waker);
}

Stream::Ready RingStream::wait(const Wish& wish) {
  const bool wishes = wish.in || wish.out;
  if (wishes) spin(wish);
  if (wish.out && !has_room()) clear(out_.room_waker);
  const bool sleeps = !(wakes_by_bytes_ && wishes && nap(wish));
  if (wish.in && sleeps) in_.state->consumer_sleeps.store(1, std::memory_order_seq_cst);
  if (wish.out && sleeps) out_.state->producer_sleeps.store(1, std::memory_order_seq_cst);
  const bool is_now = is_ready(wish);
  Polled polled;
  if (!is_now || wish.also >= 0) polled = poll_for(wish, is_now || !sleeps ? 0ns : wish.limit);
  if (polled.data) drop_stale_wake();
  if (wish.out && ended_ && !has_room()) throw Lost{"the connection was closed"};
  return {wish.in && (ended_ || has_data()), wish.out && has_room(), polled.also};
}

void RingStream::wait_for_end() { wait_for_end_of(socket_.get()); }

// A guest's client may still have objects in its slice: it keeps the socket, and so the slice. If the socket's other
// end is gone, nobody knows that any more.
void RingStream::shut() {
  const bool keeps_slice = wakes_by_bytes_ && side_ == Side::client;
  if (!keeps_slice || ended_ || !send_byte(kEnds)) {
    shutdown(socket_.get(), SHUT_RDWR);
    if (keeps_slice) memory_->leave();
    return;
  }
  ended_ = true;
  signal(in_.data_waker);
  signal(out_.room_waker);
}

void RingStream::abandon() {
  socket_.reset();
  memory_->abandon();
  wakers_ = {};
}

}  // namespace grus::channel
