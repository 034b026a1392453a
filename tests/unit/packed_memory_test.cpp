// What is packed comes back as it was: blocks that can be made smaller, that can't, and of zeroes; and a last one that
// is shorter.
#include "server/packed_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace grus::server {
namespace {

constexpr std::size_t kTail = 1000;

TEST(PackedMemory, GivesBackWhatItWasGiven) {
  std::vector<std::byte> all(3 * PackedMemory::kBlock + kTail);
  std::mt19937 random{7};  // NOLINT(cert-msc51-cpp): the same every time
  std::generate_n(all.begin(), PackedMemory::kBlock, [&] { return static_cast<std::byte>(random()); });
  std::fill_n(all.begin() + PackedMemory::kBlock, PackedMemory::kBlock, std::byte{42});
  std::generate_n(all.end() - kTail, kTail, [&] { return static_cast<std::byte>(random()); });
  const auto block = [&](std::size_t number) {
    const std::size_t offset = number * PackedMemory::kBlock;
    return std::span{all}.subspan(offset, std::min(PackedMemory::kBlock, all.size() - offset));
  };

  PackedMemory packed;
  std::vector<std::size_t> sizes{0};
  for (std::size_t number = 0; number < 4; ++number) {
    packed.add(block(number));
    sizes.push_back(packed.size());
  }
  EXPECT_EQ(sizes[1], PackedMemory::kBlock) << "noise stays as it is";
  EXPECT_LT(sizes[2] - sizes[1], PackedMemory::kBlock / 100);
  EXPECT_EQ(sizes[3], sizes[2]) << "zeroes take nothing";
  EXPECT_EQ(sizes[4] - sizes[3], kTail);

  for (const std::size_t number : {3U, 0U, 2U, 1U}) {
    std::vector<std::byte> found(block(number).size(), std::byte{1});
    packed.unpack(number, found);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), block(number).begin())) << number;
  }
}

}  // namespace
}  // namespace grus::server
