#include "channel/lasting.hpp"

#include <algorithm>
#include <cstring>

namespace grus::channel {
namespace {

constexpr std::size_t kSpares = 16;
constexpr std::size_t kLargestSpare = std::size_t{1} << 20;
constexpr std::size_t kMostDrained = std::size_t{256} << 20;
constexpr const char* kClosed = "the connection was closed";

}  // namespace

LastingStream::LastingStream(std::unique_ptr<Stream> first, Reconnect reconnect)
    : reconnect_{std::move(reconnect)}, current_{std::move(first)} {}

// With current_mutex_.
void LastingStream::check_open() const {
  if (!ended_.empty()) throw Lost{ended_};
  if (closed_) throw Lost{kClosed};
}

std::shared_ptr<Stream> LastingStream::current() const {
  const std::shared_lock lock{current_mutex_};
  check_open();
  return current_;
}

// Tries with the stream there is, and again with the next one, until it works or there is none.
template <typename Try>
auto LastingStream::lasting(Try attempt) {
  for (;;) {
    std::shared_ptr<Stream> used;
    std::optional<Lost> why;
    {
      const std::shared_lock lock{current_mutex_};
      check_open();
      used = current_;
      try {
        return attempt(*used);
      } catch (const Lost& lost) {
        note(lost);
        why = lost;
      }
    }
    mend(used, *why);
  }
}

// The system tells one thread what went wrong, and others that the connection is closed.
void LastingStream::note(const Lost& why) {
  const std::lock_guard lock{sent_mutex_};
  if (!why_ || why_->how == Lost::How::closed) why_ = why;
}

void LastingStream::mend(const std::shared_ptr<Stream>& broken, const Lost& why) {
  broken->shut();  // whoever waits for it comes here too
  const std::unique_lock lock{current_mutex_};
  if (current_ != broken || !ended_.empty()) return;
  note(why);
  try {
    drain(*broken);
    check_open();
    replace(reconnect_(received_, *why_));
    check_open();
  } catch (const Lost& lost) {
    ended_ = lost.what();
    throw;
  }
}

// With current_mutex_.
void LastingStream::replace(Connected connected) {
  const std::lock_guard lock{sent_mutex_};
  const std::uint64_t kept_from = sent_.empty() ? sent_so_far_ : sent_.front().start;
  if (connected.received < kept_from || connected.received > sent_so_far_) throw Lost{"the other side lost its place"};
  again_from_ = connected.received;
  sends_again_ = again_from_ != sent_so_far_;
  why_.reset();
  current_ = std::move(connected.stream);
}

void LastingStream::renew(const std::function<void()>& offer) {
  std::shared_ptr<Stream> old;
  {
    const std::shared_lock lock{current_mutex_, std::try_to_lock};
    if (lock) old = current_;
  }
  offer();
  if (!old) return;  // somebody waits for it already
  try {
    mend(old, Lost{"there is a better connection"});
  } catch (const Lost&) {  // whoever uses the stream is told
  }
}

// With sent_mutex_. True when nothing is left of it.
bool LastingStream::send_again(Stream& stream) {
  while (again_from_ != sent_so_far_) {
    const auto next = std::find_if(sent_.begin(), sent_.end(),
                                   [&](const Sent& part) { return part.start + part.size > again_from_; });
    const std::size_t skipped = again_from_ - next->start;
    iovec part{const_cast<std::byte*>(next->data) + skipped, next->size - skipped};
    std::span<iovec> left{&part, 1};
    stream.send_some(left);
    again_from_ = next->start + next->size - (left.empty() ? 0 : left.front().iov_len);
    if (!left.empty()) return false;
  }
  sends_again_ = false;
  return true;
}

void LastingStream::send_some(std::span<iovec>& parts) {
  lasting([&](Stream& stream) {
    const std::lock_guard lock{sent_mutex_};
    if (!send_again(stream)) return;
    std::span<iovec> left = parts;
    std::vector<iovec> before{parts.begin(), parts.end()};
    stream.send_some(left);
    // What was taken is the difference between what there was and what is left.
    const std::size_t whole = parts.size() - left.size();
    for (std::size_t index = 0; index < before.size(); ++index) {
      const iovec& part = before[index];
      const std::size_t rest = index < whole                     ? 0
                               : index == whole && !left.empty() ? left.front().iov_len
                                                                 : part.iov_len;
      const auto* start = static_cast<const std::byte*>(part.iov_base);
      for (std::size_t size = part.iov_len - rest; size != 0;) {
        const std::size_t piece = std::min(size, kLargestSpare);
        sent_.push_back({sent_so_far_, start, piece, {}});
        sent_so_far_ += piece;
        start += piece;
        size -= piece;
      }
      again_from_ = sent_so_far_;
    }
    parts = left;
  });
}

std::size_t LastingStream::receive_some(void* to, std::size_t size) {
  return lasting([&](Stream& stream) {
    if (const std::size_t taken = take_drained(to, size); taken != 0) return taken;
    const std::size_t received = stream.receive_some(to, size);
    received_ += received;
    return received;
  });
}

// While something is to be sent again the other side may wait for it, and nobody else here may send.
std::size_t LastingStream::receive_much(void* to, std::size_t size) {
  for (;;) {
    const std::size_t received = lasting([&](Stream& stream) {
      if (const std::size_t taken = take_drained(to, size); taken != 0) return taken;
      const std::size_t came = sends_again_ ? stream.receive_some(to, size) : stream.receive_much(to, size);
      received_ += came;
      return came;
    });
    if (received != 0 || size == 0) return received;
    wait({.in = true});
  }
}

Stream::Ready LastingStream::wait(const Wish& wish) {
  for (;;) {
    const auto used = current();
    if (wish.in && has_drained_) return {.in = true};
    Wish inner = wish;
    inner.ends = true;
    inner.out |= sends_again_;
    Ready ready;
    try {
      ready = used->wait(inner);
      if (ready.ended && !wish.in && !wish.out) throw Lost{"the connection was lost"};
    } catch (const Lost& lost) {
      mend(used, lost);
      continue;
    }
    if (!sends_again_) return ready;
    lasting([&](Stream& stream) {
      const std::lock_guard lock{sent_mutex_};
      send_again(stream);
    });
    if (ready.in || ready.also || (wish.out && ready.out)) return ready;
    if (wish.limit) return ready;
  }
}

// Connects again by itself: whoever uses the stream may be busy elsewhere for long.
void LastingStream::wait_for_end() {
  for (;;) {
    const auto used = current();
    try {
      used->wait_for_end();
    } catch (const Lost& lost) {
      mend(used, lost);
    }
  }
}

// With sent_mutex_.
void LastingStream::forget_what_came(const Stream& stream) {
  const std::size_t outstanding = stream.outstanding();
  while (!sent_.empty() && sent_.front().start + sent_.front().size + outstanding <= again_from_) {
    auto& own = sent_.front().own;
    if (own.capacity() != 0 && spare_.size() < kSpares) spare_.push_back(std::move(own));
    sent_.pop_front();
  }
  if (sent_.empty() || !sent_.front().own.empty()) return;
  Sent& first = sent_.front();  // of which part has come
  const std::uint64_t came = again_from_ - std::min<std::uint64_t>(outstanding, again_from_);
  const std::size_t skipped = came > first.start ? came - first.start : 0;
  first = {first.start + skipped, first.data + skipped, first.size - skipped, {}};
}

void LastingStream::let_go() {
  const std::shared_lock current_lock{current_mutex_};
  const std::lock_guard lock{sent_mutex_};
  forget_what_came(*current_);
  for (auto part = sent_.rbegin(); part != sent_.rend() && part->own.empty(); ++part) {
    if (!spare_.empty()) {
      part->own = std::move(spare_.back());
      spare_.pop_back();
    }
    part->own.assign(part->data, part->data + part->size);
    part->data = part->own.data();
  }
}

// What has come must not be sent again.
void LastingStream::drain(Stream& stream) {
  constexpr std::size_t kPiece = 64 * 1024;
  for (std::size_t received = 1; received != 0;) {
    const std::size_t before = drained_.size();
    drained_.resize(before + kPiece);
    try {
      received = stream.receive_some(drained_.data() + before, kPiece);
    } catch (const Lost& lost) {
      note(lost);
      received = 0;
    }
    drained_.resize(before + received);
    received_ += received;
    has_drained_ = !drained_.empty();
    // Who loses one connection after the other and lets nobody receive in between.
    if (drained_.size() > kMostDrained) throw Lost{"too much has come that nobody received"};
  }
}

std::size_t LastingStream::take_drained(void* to, std::size_t size) {
  const std::size_t taken = std::min(size, drained_.size());
  if (taken == 0) return 0;
  std::memcpy(to, drained_.data(), taken);
  drained_.erase(drained_.begin(), drained_.begin() + static_cast<std::ptrdiff_t>(taken));
  has_drained_ = !drained_.empty();
  return taken;
}

// Whoever is mending it, and can't be waited for, notices.
void LastingStream::shut() {
  closed_ = true;
  const std::shared_lock lock{current_mutex_, std::try_to_lock};
  if (lock) current_->shut();
}

void LastingStream::abandon() { current_->abandon(); }

}  // namespace grus::channel
