// Whether fingerprints tell pages apart that hardly differ; and that gMig's doesn't. Then samples, and the copying that
// relies on all of it.
#include "memory/fingerprint.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "memory/copy.hpp"
#include "memory/fingerprint_kernels.hpp"
#include "move/shelf.hpp"
#include "opencl_fixture.hpp"

namespace grus::test {
namespace {

using memory::Kind;
using memory::kPage;
using Page = std::vector<std::byte>;
using Pages = std::vector<Page>;
using Digest = std::array<std::uint64_t, 2>;

Page random_page(unsigned seed) {
  std::mt19937_64 random{seed};
  Page page(kPage);
  for (std::byte& byte : page) byte = static_cast<std::byte>(random());
  return page;
}

Page counting_page() {
  Page page(kPage);
  for (std::uint32_t i = 0; i < kPage / sizeof i; ++i) {
    const std::uint32_t word = 0x01010101 + i;  // none of its bytes is 0, so that no two shifts are the same
    std::memcpy(page.data() + i * sizeof word, &word, sizeof word);
  }
  return page;
}

Page swapped(Page page, std::size_t block, std::size_t first, std::size_t second) {
  std::swap_ranges(page.begin() + static_cast<std::ptrdiff_t>(first * block),
                   page.begin() + static_cast<std::ptrdiff_t>((first + 1) * block),
                   page.begin() + static_cast<std::ptrdiff_t>(second * block));
  return page;
}

void add_bit_flips(Pages& pages, const Page& page) {
  for (std::size_t bit = 0; bit < 8 * kPage; ++bit) {
    pages.push_back(page);
    pages.back()[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

// Neighbours, and blocks at a distance of a power of two: as far apart as lanes, loads and lines are.
void add_swaps(Pages& pages, const Page& page, std::size_t block) {
  for (std::size_t apart = 1; apart < kPage / block; apart *= 2) {
    for (std::size_t first = 0; first + apart < kPage / block; ++first)
      pages.push_back(swapped(page, block, first, first + apart));
  }
}

void add_rotations_and_shifts(Pages& pages, const Page& page) {
  for (std::size_t by = 1; by < kPage; ++by) {
    pages.push_back(page);
    std::rotate(pages.back().begin(), pages.back().begin() + static_cast<std::ptrdiff_t>(by), pages.back().end());
  }
  for (std::size_t by = 1; by < kPage; ++by) {
    Page& shifted = pages.emplace_back(kPage);
    std::copy(page.begin(), page.end() - static_cast<std::ptrdiff_t>(by),
              shifted.begin() + static_cast<std::ptrdiff_t>(by));
  }
}

// Pages that are all different.
Pages alike(const Page& page) {
  Pages pages{page};
  add_bit_flips(pages, page);
  for (const std::size_t block : {8, 16, 32}) add_swaps(pages, page, block);
  add_rotations_and_shifts(pages, page);
  return pages;
}

Pages almost_zero() {
  Pages pages{Page(kPage)};
  add_bit_flips(pages, Page(kPage));
  pages.emplace_back(kPage, std::byte{0xff});
  return pages;
}

Pages split_in_two(const Page& page) {
  Pages pages;
  for (std::size_t i = 0; i < kPage; i += 8) {  // the same bit in two words: cancels out in whatever only adds or xors
    pages.push_back(page);
    pages.back()[i] ^= std::byte{0x80};
    pages.back()[(i + 8) % kPage] ^= std::byte{0x80};
  }
  return pages;
}

template <typename Hash>
void expect_good(Hash digests_of) {
  const auto expect_different = [&](const Pages& pages) {
    std::vector<Digest> all = digests_of(pages);
    ASSERT_EQ(all.size(), pages.size());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end()) << "two of " << all.size() << " are the same";
  };
  expect_different(alike(random_page(1)));
  expect_different(alike(counting_page()));
  expect_different(almost_zero());
  expect_different(split_in_two(random_page(2)));
  // Any bit of a page changes about half of the bits of its fingerprint.
  const Page page = random_page(3);
  Pages flips{page};
  add_bit_flips(flips, page);
  const std::vector<Digest> all = digests_of(flips);
  double sum = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const int bits = std::popcount(all[i][0] ^ all[0][0]) + std::popcount(all[i][1] ^ all[0][1]);
    EXPECT_GT(bits, 30);
    sum += bits;
  }
  EXPECT_NEAR(sum / static_cast<double>(all.size() - 1), 64, 1);
}

TEST(FingerprintTest, Xxh3TellsPagesApart) {
  expect_good([](const Pages& pages) {
    std::vector<Digest> digests;
    for (const Page& page : pages) {
      const auto [low, high, none, neither] = memory::fingerprint(page, Kind::xxh3);
      digests.push_back({low, high});
    }
    return digests;
  });
}

TEST(FingerprintTest, Xor256MissesSwappedBlocksAndTheDefaultDoesNot) {
  const Page page = random_page(4);
  const Page other = swapped(page, 32, 3, 77);
  ASSERT_NE(page, other);
  EXPECT_EQ(memory::fingerprint(page, Kind::xor256), memory::fingerprint(other, Kind::xor256));
  EXPECT_NE(memory::fingerprint(page, Kind::fitting), memory::fingerprint(other, Kind::fitting));
  const Page by_words = swapped(page, 8, 3, 78);
  EXPECT_NE(memory::fingerprint(page, Kind::xor256), memory::fingerprint(by_words, Kind::xor256));
}

// With whatever instructions: checkpoints hold them.
TEST(FingerprintTest, Xxh3IsTheSameOnEveryProcessor) {
  for (const std::size_t size :
       {kPage, kPage - 1, std::size_t{0}, std::size_t{1}, std::size_t{200}, std::size_t{300}}) {
    Page page = random_page(9);
    page.resize(size);
    const XXH128_hash_t hash = XXH3_128bits(page.data(), size);
    EXPECT_EQ(memory::fingerprint(page, Kind::xxh3), (memory::Fingerprint{hash.low64, hash.high64, 0, 0})) << size;
  }
}

TEST(FingerprintTest, Xor256IsTheExclusiveOrOfBlocks) {
  for (const std::size_t size : {kPage, kPage - 1, std::size_t{1}, std::size_t{32}, std::size_t{100}}) {
    Page page = random_page(5);
    page.resize(size);
    std::array<std::byte, sizeof(memory::Fingerprint)> sum{};
    for (std::size_t i = 0; i < size; ++i) sum[i % sum.size()] ^= page[i];
    EXPECT_EQ(std::bit_cast<memory::Fingerprint>(sum), memory::fingerprint(page, Kind::xor256)) << size;
  }
}

// The kernel, on a device.
class DeviceFingerprintTest : public OpenClTest {
 protected:
  void SetUp() override {
    OpenClTest::SetUp();
    program_ = make_program(memory::kFingerprintKernels);
    kernel_ = cl().clCreateKernel(program_, "fingerprint", nullptr);
  }
  void TearDown() override {
    cl().clReleaseKernel(kernel_);
    cl().clReleaseProgram(program_);
    OpenClTest::TearDown();
  }

  // Which pages it says have changed since; what was sent before is in `digests`, and what there is now comes back.
  std::vector<cl_uint> look(std::span<const Page> pages, std::vector<Digest>& digests) {
    const std::size_t count = pages.size();
    const cl_mem from = make_buffer(count * kPage);
    const cl_mem sent = make_buffer(count * sizeof(Digest));
    const cl_mem changed = make_buffer((1 + count) * sizeof(cl_uint));
    for (std::size_t i = 0; i < count; ++i) write(from, i * kPage, pages[i].data(), kPage);
    write(sent, 0, digests.data(), count * sizeof(Digest));
    std::vector<cl_uint> list(1 + count);
    write(changed, 0, list.data(), list.size() * sizeof(cl_uint));
    const cl_ulong first = 0;
    cl().clSetKernelArg(kernel_, 0, sizeof from, &from);
    cl().clSetKernelArg(kernel_, 1, sizeof first, &first);
    cl().clSetKernelArg(kernel_, 2, sizeof sent, &sent);
    cl().clSetKernelArg(kernel_, 3, sizeof first, &first);
    cl().clSetKernelArg(kernel_, 4, sizeof changed, &changed);
    const std::size_t local = 32;
    const std::size_t global = local * count;
    EXPECT_EQ(cl().clEnqueueNDRangeKernel(queue_, kernel_, 1, nullptr, &global, &local, 0, nullptr, nullptr),
              CL_SUCCESS);
    read(sent, digests.data(), count * sizeof(Digest));
    read(changed, list.data(), list.size() * sizeof(cl_uint));
    for (const cl_mem buffer : {from, sent, changed}) cl().clReleaseMemObject(buffer);
    EXPECT_LE(list[0], count);
    list.resize(1 + std::min<std::size_t>(list[0], count));
    list.erase(list.begin());
    std::sort(list.begin(), list.end());
    return list;
  }
  void write(cl_mem to, std::size_t offset, const void* data, std::size_t size) {
    ASSERT_EQ(cl().clEnqueueWriteBuffer(queue_, to, CL_TRUE, offset, size, data, 0, nullptr, nullptr), CL_SUCCESS);
  }
  void read(cl_mem from, void* data, std::size_t size) {
    ASSERT_EQ(cl().clEnqueueReadBuffer(queue_, from, CL_TRUE, 0, size, data, 0, nullptr, nullptr), CL_SUCCESS);
  }

  cl_program program_ = nullptr;
  cl_kernel kernel_ = nullptr;
};

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD;
  x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53;
  return x ^ x >> 33;
}

// What the kernel does, by the host.
Digest digest_of(const Page& page) {
  constexpr std::uint64_t kFirst = 0x9E3779B185EBCA87;
  constexpr std::uint64_t kSecond = 0xC2B2AE3D27D4EB4F;
  constexpr std::uint64_t kThird = 0x165667B19E3779F9;
  Digest digest{};
  for (std::uint64_t lane = 0; lane < 32; ++lane) {
    std::uint64_t a = 0x85EBCA77C2B2AE63;
    std::uint64_t b = 0x27D4EB2F165667C5;
    for (std::uint64_t next = lane; next < 256; next += 32) {
      Digest word;
      std::memcpy(&word, page.data() + next * sizeof word, sizeof word);
      a = std::rotl(a ^ (word[0] * kFirst + next), 31) * kSecond + word[1];
      b = std::rotl(b ^ (word[1] * kThird + next), 27) * kFirst + word[0];
    }
    digest[0] += mixed(a + (lane + 1) * kThird);
    digest[1] += mixed(b ^ (lane + 1) * kSecond);
  }
  return digest;
}

TEST_F(DeviceFingerprintTest, TellsPagesApart) {
  expect_good([this](const Pages& pages) {
    std::vector<Digest> all;
    for (std::size_t done = 0; done < pages.size(); done += 8192) {
      const auto batch = std::span{pages}.subspan(done, std::min<std::size_t>(8192, pages.size() - done));
      std::vector<Digest> digests(batch.size());
      EXPECT_EQ(look(batch, digests).size(), batch.size());
      all.insert(all.end(), digests.begin(), digests.end());
    }
    return all;
  });
}

TEST_F(DeviceFingerprintTest, FindsWhatChangedOnEveryDevice) {
  constexpr cl_uint kIsZero = 0x80000000;
  Pages pages{random_page(6), Page(kPage), counting_page(), random_page(7)};
  std::vector<Digest> digests(pages.size());
  EXPECT_EQ(look(pages, digests), (std::vector<cl_uint>{0, 2, 3, 1 | kIsZero}));
  for (std::size_t i = 0; i < pages.size(); ++i) EXPECT_EQ(digests[i], digest_of(pages[i])) << i;
  EXPECT_EQ(look(pages, digests), std::vector<cl_uint>{});
  pages[3] = swapped(pages[3], 32, 0, 1);
  pages[1].back() = std::byte{1};
  EXPECT_EQ(look(pages, digests), (std::vector<cl_uint>{1, 3}));
  pages[2] = Page(kPage);
  EXPECT_EQ(look(pages, digests), (std::vector<cl_uint>{2 | kIsZero}));
}

// Samples: which bytes, and that a page whose samples are the same is looked at all the same.
TEST(SampleTest, BytesLookedAt) {
  using At = memory::Sample::At;
  const Page page = counting_page();
  Page changed = page;
  changed[0] ^= std::byte{1};
  EXPECT_NE(memory::sample_of(page, {1, At::head}), memory::sample_of(changed, {1, At::head}));
  EXPECT_EQ(memory::sample_of(page, {4, At::tail}), memory::sample_of(changed, {4, At::tail}));
  EXPECT_EQ(memory::sample_of(page, {4, At::uniform}), memory::sample_of(changed, {4, At::uniform}));
  changed = page;
  changed[kPage - 4] ^= std::byte{1};
  EXPECT_EQ(memory::sample_of(page, {2, At::tail}), memory::sample_of(changed, {2, At::tail}));
  EXPECT_NE(memory::sample_of(page, {4, At::tail}), memory::sample_of(changed, {4, At::tail}));
  changed = page;
  for (const std::size_t place : {512, 1536, 2560, 3584}) changed[place] ^= std::byte{1};
  EXPECT_NE(memory::sample_of(page, {4, At::uniform}), memory::sample_of(changed, {4, At::uniform}));
  EXPECT_EQ(memory::sample_of({}, {4, At::uniform}), 0U);
}

TEST(SampleTest, SameSampleIsNotEnough) {
  using Found = memory::SentPages::Found;
  using memory::Round;
  memory::SentPages sent{kPage, {Kind::xxh3, {1, memory::Sample::At::head}}};
  Page page = random_page(8);
  EXPECT_EQ(sent.note(0, page, Round::another_follows), Found::never_sent);
  EXPECT_EQ(sent.note(0, page, Round::last), Found::unchanged);
  page[100] ^= std::byte{1};
  EXPECT_EQ(sent.note(0, page, Round::another_follows), Found::other_fingerprint);
  page[200] ^= std::byte{1};
  EXPECT_EQ(sent.note(0, page, Round::last), Found::other_fingerprint);
  page[0] ^= std::byte{1};
  EXPECT_EQ(sent.note(0, page, Round::another_follows), Found::other_sample);
  EXPECT_EQ(sent.note(0, page, Round::another_follows), Found::unchanged);
  // Nobody knows the fingerprint of what was sent for its sample in the last round: if it isn't the last, it goes
  // again.
  page[0] ^= std::byte{1};
  EXPECT_EQ(sent.note(0, page, Round::last), Found::other_sample);
  EXPECT_EQ(sent.note(0, page, Round::last), Found::never_sent);
}

// Memory that is changed whenever it is read, and changed back before anyone can look again.
class Flickering : public move::Shelf {
 public:
  using move::Shelf::submit;
  cl_int submit(const command::Read& read, const Placement& placement) override {
    if (flickers) flip(read.memory);
    const cl_int code = move::Shelf::submit(read, placement);
    if (flickers) flip(read.memory);
    return code;
  }
  bool flickers = false;

 private:
  void flip(ObjectId id) { contents().at(id.value()).memory->data()[kPage + 5] ^= std::byte{0xff}; }
};

class CopyTest : public ::testing::TestWithParam<memory::Sample> {
 protected:
  static constexpr std::size_t kSize = 3 * kPage + 100;
  void SetUp() override {
    for (Executor* const executor : {static_cast<Executor*>(&from_), static_cast<Executor*>(&to_)}) {
      NewBuffer order;
      order.id = kBuffer;
      order.size = kSize;
      ASSERT_EQ(executor->create_buffer(order), CL_SUCCESS);
    }
    std::vector<std::byte> all(kSize);
    for (std::size_t i = 0; i < kSize; ++i) all[i] = static_cast<std::byte>(i * 31 / 7);
    ASSERT_EQ(from_.submit(command::Write{{kBuffer}, {0, kSize}, all.data()}, {}), CL_SUCCESS);
  }
  memory::Copied copy(memory::Round round) {
    memory::Copied sum;
    memory::Conveyor conveyor{memory::kChunk, memory::Conveyor::Overlap::on};
    memory::copy_buffer({from_, to_, {}, conveyor}, kBuffer, {0, kSize}, nullptr, pages_, round,
                        [&](const auto& more) { sum += more; });
    conveyor.finish();
    return sum;
  }
  static Page held(move::Shelf& shelf) {
    Page all(kSize);
    EXPECT_EQ(shelf.submit(command::Read{{kBuffer}, {0, kSize}, all.data()}, {}), CL_SUCCESS);
    return all;
  }

  static constexpr ObjectId kBuffer{1, 1};
  Flickering from_;
  move::Shelf to_;
  memory::SentPages pages_{kSize, {Kind::xxh3, GetParam()}};
};

TEST_P(CopyTest, PageThatChangesForAsLongAsItIsRead) {
  from_.flickers = true;
  EXPECT_EQ(copy(memory::Round::another_follows).sent, kSize);
  from_.flickers = false;
  EXPECT_NE(held(from_), held(to_));
  EXPECT_EQ(copy(memory::Round::last).sent, kPage);
  EXPECT_EQ(held(from_), held(to_));
}

TEST_P(CopyTest, PageThatChangesLaterForAsLongAsItIsRead) {
  copy(memory::Round::another_follows);
  from_.flickers = true;
  EXPECT_EQ(copy(memory::Round::another_follows).sent, kPage);
  EXPECT_EQ(copy(memory::Round::another_follows).sent, 0U);
  from_.flickers = false;
  EXPECT_EQ(copy(memory::Round::last).sent, kPage);
  EXPECT_EQ(held(from_), held(to_));
}

INSTANTIATE_TEST_SUITE_P(Samples, CopyTest,
                         ::testing::Values(memory::Sample{}, memory::Sample{4, memory::Sample::At::head},
                                           memory::Sample{4, memory::Sample::At::uniform}));

}  // namespace
}  // namespace grus::test
