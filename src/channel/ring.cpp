#include "channel/ring.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace grus::channel {
namespace {

void wake(std::atomic<std::uint32_t>& sleeps, int waker) {
  if (sleeps.load(std::memory_order_seq_cst) == 0 || sleeps.exchange(0) == 0) return;
  const std::uint64_t one = 1;
  (void)!write(waker, &one, sizeof one);
}

void clear(int waker) {
  std::uint64_t count = 0;
  (void)!read(waker, &count, sizeof count);
}

}  // namespace

RingStream::RingStream(Side side, std::shared_ptr<SharedMemory> memory, Wakers wakers, Descriptor socket)
    : memory_{std::move(memory)}, wakers_{std::move(wakers)}, socket_{std::move(socket)} {
  auto* const states = reinterpret_cast<RingState*>(memory_->rings());
  std::byte* const data = memory_->rings() + 2 * sizeof(RingState);
  out_ = {&states[0], data, wakers_.to_server.get(), wakers_.room_to_server.get()};
  in_ = {&states[1], data + kRingSize, wakers_.to_client.get(), wakers_.room_to_client.get()};
  if (side == Side::server) std::swap(out_, in_);
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

Stream::Ready RingStream::wait(const Wish& wish) {
  if (spin_.count() != 0 && (wish.in || wish.out)) {
    const auto end = std::chrono::steady_clock::now() + (wish.limit ? std::min(*wish.limit, spin_) : spin_);
    while (!is_ready(wish) && std::chrono::steady_clock::now() < end) __builtin_ia32_pause();
  }
  if (wish.out && !has_room()) clear(out_.room_waker);
  if (wish.in) in_.state->consumer_sleeps.store(1, std::memory_order_seq_cst);
  if (wish.out) out_.state->producer_sleeps.store(1, std::memory_order_seq_cst);
  const bool is_now = is_ready(wish);
  pollfd ready[4] = {{wish.in ? in_.data_waker : -1, POLLIN, 0},
                     {wish.out ? out_.room_waker : -1, POLLIN, 0},
                     {wish.in || wish.out ? socket_.get() : -1, POLLRDHUP, 0},
                     {wish.also, POLLIN, 0}};
  timespec limit{};
  if (wish.limit && !is_now) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(*wish.limit);
    limit = {seconds.count(), (*wish.limit - seconds).count()};
  }
  if (!is_now || wish.also >= 0) ppoll(ready, 4, wish.limit || is_now ? &limit : nullptr, nullptr);
  if (ready[2].revents) ended_ = true;
  if (wish.out && ended_ && !has_room()) throw Lost{"the connection was closed"};
  return {wish.in && (ended_ || has_data()), wish.out && has_room(), ready[3].revents != 0};
}

void RingStream::shut() { shutdown(socket_.get(), SHUT_RDWR); }

void RingStream::abandon() {
  socket_.reset();
  wakers_ = {};
}

}  // namespace grus::channel
