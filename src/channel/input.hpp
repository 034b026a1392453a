// What arrives on a stream, read ahead in large pieces so that a batch of small messages costs one system call. Bulk
// goes straight to where it is wanted.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "channel/kinds.hpp"
#include "channel/stream.hpp"
#include "channel/wire.hpp"

namespace grus::channel {

class Input {
 public:
  explicit Input(Stream& stream) : stream_{stream}, ahead_(kAhead) {}

  // How long to wait for the next bytes; none: for ever.
  void set_patience(std::optional<std::chrono::nanoseconds> patience) { patience_ = patience; }
  bool has_some() const { return first_ != last_; }
  // Takes what has come, and doesn't wait.
  bool take_some() {
    if (has_some()) return true;
    first_ = 0;
    last_ = stream_.receive_some(ahead_.data(), ahead_.size());
    return has_some();
  }
  void read(void* to, std::size_t size) {
    if (size == 0) return;
    auto* next = static_cast<std::byte*>(to);
    const std::size_t known = std::min(size, last_ - first_);
    std::memcpy(next, ahead_.data() + first_, known);
    first_ += known;
    next += known;
    size -= known;
    if (size == 0) return;
    if (size >= ahead_.size()) {
      while (size != 0) {
        const std::size_t received = stream_.receive_much(next, size);
        next += received;
        size -= received;
      }
      return;
    }
    fill(size);
    std::memcpy(next, ahead_.data(), size);
    first_ = size;
  }
  Head read_head() {
    Head head;
    read(&head, sizeof head);
    if (head.body > kLargestBody) throw wire::BadMessage{"a message is too long"};
    return head;
  }
  void read_body(const Head& head, Bytes& body) {
    body.resize(head.body);
    read(body.data(), body.size());
  }

 private:
  static constexpr std::size_t kAhead = 64 * 1024;

  void fill(std::size_t at_least) {
    first_ = 0;
    last_ = 0;
    while (last_ < at_least) last_ += receive(ahead_.data() + last_, ahead_.size() - last_);
  }
  std::size_t receive(std::byte* to, std::size_t size) {
    for (;;) {
      if (const std::size_t received = stream_.receive_some(to, size); received != 0) return received;
      if (!patience_) {
        stream_.wait({.in = true});
      } else if (!stream_.wait({.in = true, .limit = *patience_}).in) {
        throw Lost{"it says nothing"};
      }
    }
  }

  Stream& stream_;
  std::optional<std::chrono::nanoseconds> patience_;
  std::vector<std::byte> ahead_;
  std::size_t first_ = 0;
  std::size_t last_ = 0;
};

}  // namespace grus::channel
