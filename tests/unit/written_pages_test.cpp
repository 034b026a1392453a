// Which pages were written, as the system tells it.
#include "memory/written_pages.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

namespace grus::test {
namespace {

using memory::PageWatch;
using memory::WrittenPages;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 1024;

class WrittenPagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!memory::system_watches_pages()) GTEST_SKIP() << "this system doesn't";
    std::memset(memory_->data(), 1, memory_->size());
    written_ = WrittenPages::of(watch_, memory_);
    ASSERT_TRUE(written_);
    const auto first = written_->take();
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(first[0].size, memory_->size());
  }
  bool tells_of(const std::vector<Range>& found, std::size_t byte) const {
    return std::any_of(found.begin(), found.end(),
                       [&](const Range& range) { return byte - range.offset < range.size; });
  }
  static std::size_t size_of(const std::vector<Range>& found) {
    std::size_t sum = 0;
    for (const Range& range : found) sum += range.size;
    return sum;
  }

  // From the heap it starts and ends amid pages.
  const std::shared_ptr<HostMemory> memory_ = memory_from_heap(kPages * kPage + 1000);
  const std::shared_ptr<PageWatch> watch_ = std::make_shared<PageWatch>();
  std::unique_ptr<WrittenPages> written_;
};

TEST_F(WrittenPagesTest, EveryWriteIsToldOnce) {
  std::minstd_rand random{1};
  for (int round = 0; round < 100; ++round) {
    std::vector<std::size_t> places(1 + random() % 100);
    for (std::size_t& place : places) {
      place = random() % memory_->size();
      memory_->data()[place] ^= std::byte{1};
    }
    const auto found = written_->take();
    for (const std::size_t place : places) EXPECT_TRUE(tells_of(found, place)) << place;
    EXPECT_LE(size_of(found), (places.size() + 2) * kPage);
    EXPECT_LE(size_of(written_->take()), 2 * kPage);  // where it begins and ends
  }
}

TEST_F(WrittenPagesTest, ManySinglePages) {
  for (std::size_t page = 1; page + 1 < kPages; page += 2) memory_->data()[page * kPage + 2000] = std::byte{7};
  const auto found = written_->take();
  EXPECT_GE(found.size(), kPages / 2 - 1);
  for (std::size_t page = 1; page + 1 < kPages; page += 2) EXPECT_TRUE(tells_of(found, page * kPage + 2000));
  EXPECT_LE(size_of(found), (kPages / 2 + 2) * kPage);
}

TEST_F(WrittenPagesTest, SystemCalls) {
  const int zeroes = open("/dev/zero", O_RDONLY);
  const std::size_t place = 100 * kPage;
  ASSERT_EQ(read(zeroes, memory_->data() + place, 2 * kPage), static_cast<ssize_t>(2 * kPage));
  close(zeroes);
  const auto found = written_->take();
  EXPECT_TRUE(tells_of(found, place));
  EXPECT_TRUE(tells_of(found, place + 2 * kPage - 1));
  EXPECT_EQ(memory_->data()[place], std::byte{0});
}

TEST_F(WrittenPagesTest, WritesWhileOthersAsk) {
  std::atomic<bool> is_over{false};
  std::vector<std::byte> copy(memory_->size(), std::byte{1});
  std::thread writer{[&] {
    std::minstd_rand random{2};
    for (int next = 0; next < 200000; ++next)
      memory_->data()[random() % memory_->size()] = static_cast<std::byte>(next);
    is_over = true;
  }};
  bool is_last = false;
  while (!is_last) {
    is_last = is_over;
    for (const Range& range : written_->take())
      std::memcpy(copy.data() + range.offset, memory_->data() + range.offset, range.size);
  }
  writer.join();
  EXPECT_EQ(std::memcmp(copy.data(), memory_->data(), copy.size()), 0);
}

TEST_F(WrittenPagesTest, AfterAFork) {
  const pid_t child = fork();
  if (child == 0) {
    std::memset(memory_->data(), 9, memory_->size());
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_LE(size_of(written_->take()), 2 * kPage);
  memory_->data()[50 * kPage] = std::byte{3};
  EXPECT_TRUE(tells_of(written_->take(), 50 * kPage));
}

TEST_F(WrittenPagesTest, MemoryIsAsBeforeAfterwards) {
  memory_->data()[5 * kPage] = std::byte{4};
  written_.reset();
  memory_->data()[6 * kPage] = std::byte{5};
  EXPECT_EQ(memory_->data()[5 * kPage], std::byte{4});
  written_ = WrittenPages::of(watch_, memory_);
  ASSERT_TRUE(written_);
  EXPECT_EQ(written_->take()[0].size, memory_->size());
}

TEST(WrittenPagesRefusedTest, MemoryThatCannotBeWatched) {
  EXPECT_FALSE(WrittenPages::of(std::make_shared<PageWatch>(), memory_from_heap(1000)));
}

}  // namespace
}  // namespace grus::test
