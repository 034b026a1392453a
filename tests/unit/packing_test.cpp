// Data that is sent in blocks comes back as it was, packed or not, in whatever pieces it is read; what is made up is
// noticed. And packing is only done where it wins.
#include "channel/packing.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "channel/input.hpp"

namespace grus::channel {
namespace {

using Use = Packer::Use;

// What is sent can be received.
class Loop final : public Stream {
 public:
  void send_some(std::span<iovec>& parts) override {
    for (const iovec& part : parts) {
      const auto* const start = static_cast<const std::byte*>(part.iov_base);
      sent.insert(sent.end(), start, start + part.iov_len);
    }
    parts = {};
  }
  std::size_t receive_some(void* to, std::size_t size) override {
    const std::size_t some = std::min({size, sent.size() - received_, std::size_t{1000}});
    if (some == 0) throw Lost{"that was all"};
    std::memcpy(to, sent.data() + received_, some);
    received_ += some;
    return some;
  }
  Ready wait(const Wish& wish) override { return {.in = wish.in, .out = wish.out}; }
  void wait_for_end() override {}
  void shut() override {}
  void abandon() override {}
  std::uint64_t rate() const override { return bytes_per_second; }

  Bytes sent;
  std::uint64_t bytes_per_second = 0;

 private:
  std::size_t received_ = 0;
};

Bytes dull(std::size_t size) {
  Bytes all(size);
  for (std::size_t index = 0; index < size; ++index) all[index] = static_cast<std::byte>(index >> 12U);
  return all;
}

Bytes noise(std::size_t size) {
  std::mt19937 random{7};  // NOLINT(cert-msc51-cpp): the same every time
  Bytes all(size);
  std::generate(all.begin(), all.end(), [&] { return static_cast<std::byte>(random()); });
  return all;
}

std::size_t sent_for(Loop& loop, Packer& packer, const Bytes& data) {
  const std::size_t before = loop.sent.size();
  packer.send(data, [&](std::span<iovec> block) { loop.send(block); });
  return loop.sent.size() - before;
}

TEST(Packing, DataComesBackAsItWas) {
  for (const Use use : {Use::where_it_wins, Use::always}) {
    for (const std::size_t piece : {std::size_t{1} << 20U, std::size_t{70'000}, std::size_t{333}}) {
      Bytes data = dull(5 * kBlock / 2);
      const Bytes more = noise(kBlock + 17);
      data.insert(data.end(), more.begin(), more.end());
      Loop loop;
      Packer packer{loop, use};
      sent_for(loop, packer, data);
      Bytes behind{std::byte{1}, std::byte{2}};
      loop.sent.insert(loop.sent.end(), behind.begin(), behind.end());

      Input input{loop};
      input.expect_blocks(data.size());
      Bytes found(data.size());
      for (std::size_t done = 0; done < found.size(); done += piece)
        input.read(found.data() + done, std::min(piece, found.size() - done));
      EXPECT_TRUE(found == data);
      Bytes rest(2);
      input.read(rest.data(), rest.size());
      EXPECT_EQ(rest, behind);
    }
  }
}

TEST(Packing, IsDoneWhereItWins) {
  const Bytes data = dull(16 * kBlock);
  const auto sent_at = [&](std::uint64_t bytes_per_second, const Bytes& what) {
    Loop loop;
    loop.bytes_per_second = bytes_per_second;
    Packer packer{loop, Use::where_it_wins};
    return sent_for(loop, packer, what);
  };
  EXPECT_LT(sent_at(1'000'000, data), data.size() / 10) << "a slow link";
  EXPECT_GE(sent_at(100'000'000'000, data), data.size()) << "a fast link";
  EXPECT_GE(sent_at(0, data), data.size()) << "nobody knows";
  EXPECT_GE(sent_at(1'000'000, noise(16 * kBlock)), 16 * kBlock) << "what gets no smaller";
}

TEST(Packing, NoiseIsGivenUpAndTriedAgain) {
  Loop loop;
  loop.bytes_per_second = 50'000'000;
  Packer packer{loop, Use::where_it_wins};
  sent_for(loop, packer, noise(64 * kBlock));
  const Bytes data = dull(256 * kBlock);
  EXPECT_LT(sent_for(loop, packer, data), data.size() / 2);
}

TEST(Packing, WhatIsMadeUpIsNoticed) {
  for (const BlockSize size : {BlockSize{0}, BlockSize{100}, BlockSize{kBlock + 1}}) {
    Loop loop;
    iovec parts[2] = {{const_cast<BlockSize*>(&size), sizeof size}, {nullptr, 0}};
    Bytes data(kBlock, std::byte{0xff});
    parts[1] = {data.data(), data.size()};
    loop.send(parts);
    Input input{loop};
    input.expect_blocks(kBlock);
    Bytes found(kBlock);
    EXPECT_THROW(input.read(found.data(), found.size()), wire::BadMessage) << size;
  }
}

}  // namespace
}  // namespace grus::channel
