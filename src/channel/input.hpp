// What arrives on a stream, read ahead in large pieces so that a batch of small messages costs one system call. Bulk
// goes straight to where it is wanted.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/lz4.hpp"
#include "channel/kinds.hpp"
#include "channel/packing.hpp"
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
  // The body of the next message, if that is of such a kind and has come already.
  std::optional<std::span<const std::byte>> peek(Kind kind) {
    if (in_blocks_ != 0 || block_first_ != block_.size() || !take_some()) return std::nullopt;
    const auto there = std::span<const std::byte>{ahead_}.subspan(first_, last_ - first_);
    Head head;
    if (there.size() < sizeof head) return std::nullopt;
    std::memcpy(&head, there.data(), sizeof head);
    const auto rest = there.subspan(sizeof head);
    if (head.kind != kind || rest.size() < head.body) return std::nullopt;
    return rest.first(head.body);
  }
  // So many of the next bytes come in blocks (packing.hpp).
  void expect_blocks(std::size_t size) { in_blocks_ = size; }
  void read(void* to, std::size_t size) {
    auto* next = static_cast<std::byte*>(to);
    if (in_blocks_ == 0 && block_first_ == block_.size()) return read_plain(next, size);
    while (size != 0) {
      const std::size_t some = read_of_block(next, size);
      next += some;
      size -= some;
    }
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
    if (head.in_blocks) expect_blocks(head.bulk);
  }

 private:
  static constexpr std::size_t kAhead = 64 * 1024;

  void read_plain(std::byte* to, std::size_t size) {
    if (size == 0) return;
    const std::size_t known = std::min(size, last_ - first_);
    std::memcpy(to, ahead_.data() + first_, known);
    first_ += known;
    to += known;
    size -= known;
    if (size == 0) return;
    if (size >= ahead_.size()) {
      while (size != 0) {
        const std::size_t received = stream_.receive_much(to, size);
        to += received;
        size -= received;
      }
      return;
    }
    fill(size);
    std::memcpy(to, ahead_.data(), size);
    first_ = size;
  }
  // No more than one block has. A whole one that was sent as it is needn't be kept here.
  std::size_t read_of_block(std::byte* to, std::size_t size) {
    if (block_first_ == block_.size()) {
      const std::size_t whole = std::min<std::size_t>(kBlock, in_blocks_);
      BlockSize sent = 0;
      read_plain(reinterpret_cast<std::byte*>(&sent), sizeof sent);
      if (sent > whole || sent == 0) throw wire::BadMessage{"a block of more than it is"};
      in_blocks_ -= whole;
      if (sent == whole && size >= whole) {
        read_plain(to, whole);
        return whole;
      }
      block_.resize(whole);
      block_first_ = 0;
      if (sent == whole) {
        read_plain(block_.data(), whole);
      } else {
        packed_.resize(sent);
        read_plain(packed_.data(), sent);
        if (!lz4::unpack(packed_, block_)) throw wire::BadMessage{"a block that can't be unpacked"};
      }
    }
    const std::size_t some = std::min(size, block_.size() - block_first_);
    std::memcpy(to, block_.data() + block_first_, some);
    block_first_ += some;
    return some;
  }
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
  std::size_t in_blocks_ = 0;  // bytes that are yet to come so
  std::vector<std::byte> packed_;
  std::vector<std::byte> block_;
  std::size_t block_first_ = 0;
};

}  // namespace grus::channel
