#include "channel/lasting.hpp"

#include <algorithm>
#include <cstring>

namespace grus::channel {
namespace {

constexpr std::size_t kSpares = 16;
constexpr std::size_t kLargestSpare = std::size_t{1} << 20;

}  // namespace

LastingStream::LastingStream(std::unique_ptr<Stream> first, Reconnect reconnect)
    : reconnect_{std::move(reconnect)}, current_{std::move(first)} {}

std::shared_ptr<Stream> LastingStream::current() const {
  const std::shared_lock lock{current_mutex_};
  if (!ended_.empty()) throw Lost{ended_};
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
      if (!ended_.empty()) throw Lost{ended_};
      used = current_;
      try {
        return attempt(*used);
      } catch (const Lost& lost) {
        why = lost;
      }
    }
    mend(used, *why);
  }
}

void LastingStream::mend(const std::shared_ptr<Stream>& broken, const Lost& why) {
  broken->shut();  // whoever waits for it comes here too
  const std::unique_lock lock{current_mutex_};
  if (current_ != broken || !ended_.empty()) return;
  drain(*broken);
  try {
    Connected connected = reconnect_(received_, why);
    const std::lock_guard sent_lock{sent_mutex_};
    if (connected.received > sent_so_far_ || (!sent_.empty() && connected.received < sent_.front().start))
      throw Lost{"the other side lost its place"};
    again_from_ = connected.received;
    sends_again_ = again_from_ != sent_so_far_;
    current_ = std::move(connected.stream);
  } catch (const Lost& lost) {
    ended_ = lost.what();
    throw;
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

std::size_t LastingStream::receive_much(void* to, std::size_t size) {
  return lasting([&](Stream& stream) {
    if (const std::size_t taken = take_drained(to, size); taken != 0) return taken;
    const std::size_t received = stream.receive_much(to, size);
    received_ += received;
    return received;
  });
}

Stream::Ready LastingStream::wait(const Wish& wish) {
  for (;;) {
    const auto used = current();
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

// With sent_mutex_.
void LastingStream::forget_what_came(const Stream& stream) {
  const std::size_t outstanding = stream.outstanding();
  while (!sent_.empty() && sent_.front().start + sent_.front().size + outstanding <= again_from_) {
    auto& own = sent_.front().own;
    if (own.capacity() != 0 && spare_.size() < kSpares) spare_.push_back(std::move(own));
    sent_.pop_front();
  }
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
  try {
    for (;;) {
      const std::size_t before = drained_.size();
      drained_.resize(before + kPiece);
      const std::size_t received = stream.receive_some(drained_.data() + before, kPiece);
      drained_.resize(before + received);
      received_ += received;
      if (received == 0) return;
    }
  } catch (const Lost&) {
    drained_.resize(drained_.size() - kPiece);
  }
}

std::size_t LastingStream::take_drained(void* to, std::size_t size) {
  const std::size_t taken = std::min(size, drained_.size());
  if (taken == 0) return 0;
  std::memcpy(to, drained_.data(), taken);
  drained_.erase(drained_.begin(), drained_.begin() + static_cast<std::ptrdiff_t>(taken));
  return taken;
}

void LastingStream::shut() {
  std::shared_ptr<Stream> used;
  {
    const std::unique_lock lock{current_mutex_, std::try_to_lock};
    if (lock && ended_.empty()) ended_ = "the connection was closed";
    used = lock ? current_ : nullptr;
  }
  if (used) used->shut();
}

void LastingStream::abandon() { current_->abandon(); }

void LastingStream::interrupt() {
  const std::shared_lock lock{current_mutex_, std::try_to_lock};
  if (lock) current_->shut();
}

}  // namespace grus::channel
