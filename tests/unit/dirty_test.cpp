// What is dirty of an object: never less than was written.
#include "objects/dirty.hpp"

#include <gtest/gtest.h>

#include <random>

namespace grus::test {
namespace {

constexpr std::size_t kUnit = 16;

std::vector<bool> bytes_of(const std::vector<Range>& ranges, std::size_t size) {
  std::vector<bool> bytes(size);
  for (const auto& [offset, length] : ranges) {
    EXPECT_EQ(offset % kUnit, 0U);
    EXPECT_TRUE((offset + length) % kUnit == 0 || offset + length == size);
    for (std::size_t at = offset; at < offset + length; ++at) {
      EXPECT_FALSE(bytes.at(at)) << "twice";
      bytes.at(at) = true;
    }
  }
  return bytes;
}

TEST(Dirty, IsAllAtFirst) {
  Dirty dirty;
  dirty.add({10, 10});
  const DirtyParts taken = dirty.take();
  EXPECT_TRUE(taken.is_all);
  EXPECT_EQ(bytes_of(taken.rounded(100, kUnit), 100), std::vector<bool>(100, true));
  EXPECT_TRUE(dirty.take().empty());
}

TEST(Dirty, KnowsWhatWasWrittenToTheUnit) {
  std::minstd_rand random{1};
  for (int round = 0; round < 1000; ++round) {
    const std::size_t size = 1 + random() % 1000;
    Dirty dirty;
    (void)dirty.take();
    std::vector<bool> written(size);
    for (std::size_t writes = random() % 10; writes != 0; --writes) {
      const std::size_t offset = random() % size;
      const Range range{offset, 1 + random() % (size - offset)};
      dirty.add(range);
      const std::size_t end = std::min((range.offset + range.size + kUnit - 1) / kUnit * kUnit, size);
      for (std::size_t at = offset / kUnit * kUnit; at < end; ++at) written[at] = true;
    }
    ASSERT_EQ(bytes_of(dirty.take().rounded(size, kUnit), size), written);
  }
}

TEST(Dirty, IsAllOnceAKernelMayHaveWritten) {
  Dirty dirty;
  (void)dirty.take();
  dirty.add({0, 1});
  dirty.add_all();
  dirty.add({1, 1});
  const DirtyParts taken = dirty.take();
  EXPECT_TRUE(taken.is_all);
  EXPECT_TRUE(taken.ranges.empty());
}

TEST(Dirty, IsAllAfterVeryManyWrites) {
  Dirty dirty;
  (void)dirty.take();
  for (std::size_t next = 0; next < 10'000; ++next) dirty.add({2 * next, 1});
  EXPECT_TRUE(dirty.take().is_all);
}

TEST(Dirty, OneWriteBehindTheOtherIsOne) {
  Dirty dirty;
  (void)dirty.take();
  for (std::size_t next = 0; next < 10'000; ++next) dirty.add({2 * next, 2});
  const DirtyParts taken = dirty.take();
  ASSERT_EQ(taken.ranges.size(), 1U);
  EXPECT_EQ(taken.ranges[0].size, 20'000U);
}

}  // namespace
}  // namespace grus::test
