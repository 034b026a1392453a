// A stream whose input is known beforehand, and comes in pieces of some size. What is sent is read, so that a sanitizer
// sees whether it may be.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "channel/stream.hpp"

namespace grus::fuzz {

class MemoryStream final : public channel::Stream {
 public:
  MemoryStream(std::span<const std::byte> input, std::size_t piece) : left_{input}, piece_{piece} {}

  void send_some(std::span<iovec>& parts) override {
    std::size_t sum = 0;
    for (const iovec& part : parts) {
      const auto* const bytes = static_cast<const unsigned char*>(part.iov_base);
      for (std::size_t index = 0; index < part.iov_len; ++index) sum += bytes[index];
    }
    sum_ = sum;
    parts = {};
  }
  std::size_t receive_some(void* to, std::size_t size) override {
    if (left_.empty()) throw channel::Lost{"that was all"};
    const std::size_t taken = std::min({size, piece_, left_.size()});
    std::memcpy(to, left_.data(), taken);
    left_ = left_.subspan(taken);
    return taken;
  }
  Ready wait(const Wish& wish) override { return {.in = wish.in, .out = wish.out}; }
  void wait_for_end() override {}
  void shut() override {}
  void abandon() override {}

 private:
  std::span<const std::byte> left_;
  const std::size_t piece_;
  std::atomic<std::size_t> sum_{0};
};

}  // namespace grus::fuzz
