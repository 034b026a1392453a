// Programs whose memory changes while they are moved.
#include <array>
#include <iostream>
#include <numeric>
#include <random>
#include <thread>

#include "subject.hpp"

namespace subject {
namespace {

cl_uint page_of(cl_uint launch, cl_uint i, cl_uint pages) {
  cl_uint x = launch * 2654435761U + i;
  x ^= x >> 16;
  x *= 0x7FEB352DU;
  x ^= x >> 15;
  x *= 0x846CA68BU;
  x ^= x >> 16;
  return x % pages;
}

// Counts what happens in every tenth of a second.
class Tenths {
 public:
  void count() {
    const auto now = static_cast<size_t>((Clock::now() - start_) / std::chrono::milliseconds{100});
    if (counts_.size() <= now) counts_.resize(now + 1);
    ++counts_[now];
  }
  void tell() const {
    std::printf("{\"start\": %.6f, \"tenths\": [", std::chrono::duration<double>{start_.time_since_epoch()}.count());
    for (size_t next = 0; next < counts_.size(); ++next) std::printf("%s%u", next == 0 ? "" : ", ", counts_[next]);
    std::printf("]} right\n");
  }

 private:
  const Clock::time_point start_ = Clock::now();
  std::vector<unsigned> counts_;
};

class Scattered {
 public:
  Scattered(size_t buffers, size_t mib, cl_uint touched)
      : words_{mib << 18}, pages_{static_cast<cl_uint>(words_ / 1024)}, touched_{touched} {
    cl_kernel fill = subject_.kernel("fill");
    for (size_t next = 0; next < buffers; ++next) {
      all_.push_back(subject_.buffer(words_));
      subject_.run(fill, all_.back(), static_cast<cl_uint>(next), words_);
    }
    subject_.finish();
  }
  // Until one takes as long as it is to.
  void calibrate(std::chrono::milliseconds time) {
    launch(nullptr);  // the first takes longer
    subject_.finish();
    for (rounds_ = 64;; rounds_ *= 2) {
      const auto start = Clock::now();
      launch(nullptr);
      subject_.finish();
      const auto took = Clock::now() - start;
      if (took < time / 4) continue;
      rounds_ = static_cast<cl_uint>(static_cast<double>(rounds_) * (time / std::chrono::duration<double>{took}));
      return;
    }
  }
  void run() {
    tell_ready();
    std::vector<cl_event> events(4);
    Tenths tenths;
    for (size_t turn = 0; !is_input_over(); ++turn) {
      cl_event& event = events[turn % events.size()];
      if (event) {
        check(clWaitForEvents(1, &event), "clWaitForEvents");
        check(clReleaseEvent(event), "clReleaseEvent");
        tenths.count();
      }
      launch(&event);
      check(clFlush(subject_.queue), "clFlush");
    }
    check_all();
    tenths.tell();
  }

 private:
  void launch(cl_event* event) {
    const cl_uint number = launches_++;
    const size_t items = std::max<size_t>(touched_, 1 << 18);
    check(clSetKernelArg(kernel_, 2, sizeof pages_, &pages_), "clSetKernelArg");
    check(clSetKernelArg(kernel_, 3, sizeof touched_, &touched_), "clSetKernelArg");
    check(clSetKernelArg(kernel_, 4, sizeof rounds_, &rounds_), "clSetKernelArg");
    subject_.run(kernel_, all_[number % all_.size()], number, items, event);
  }
  void check_all() {
    for (size_t next = 0; next < all_.size(); ++next) {
      const auto seed = static_cast<cl_uint>(next);
      std::vector<cl_uint> added(pages_);
      for (cl_uint launch = seed; launch < launches_; launch += static_cast<cl_uint>(all_.size())) {
        for (cl_uint i = 0; i < touched_; ++i) ++added[page_of(launch, i, pages_)];
      }
      const Words now = subject_.read(all_[next], words_);
      for (size_t i = 0; i < words_; i += 256) {
        const cl_uint expected = filled(static_cast<cl_uint>(i), seed) + (i % 1024 == 0 ? added[i / 1024] : 0);
        if (now[i] != expected) fail("word " + std::to_string(i) + " of buffer " + std::to_string(next));
      }
    }
  }

  Subject subject_;
  const size_t words_;
  const cl_uint pages_;
  const cl_uint touched_;
  cl_kernel kernel_ = subject_.kernel("touch");
  std::vector<cl_mem> all_;
  cl_uint rounds_ = 1;
  cl_uint launches_ = 0;
};

// Writes to parts of a buffer, and knows what it must hold then.
class Ways {
 public:
  void by_kernel() {
    const Part part = some();
    check(clSetKernelArg(flip_, 0, sizeof memory_, &memory_), "clSetKernelArg");
    check(clSetKernelArg(flip_, 1, sizeof part.value, &part.value), "clSetKernelArg");
    const size_t one = 1;  // else drivers compile it for many sizes of groups
    check(clEnqueueNDRangeKernel(subject_.queue, flip_, 1, &part.start, &part.words, &one, 0, nullptr, nullptr),
          "clEnqueueNDRangeKernel");
    for (size_t i = 0; i < part.words; ++i) expected_[part.start + i] ^= part.value;
  }
  void by_fill() {
    const Part part = some();
    check(clEnqueueFillBuffer(subject_.queue, memory_, &part.value, sizeof part.value, 4 * part.start, 4 * part.words,
                              0, nullptr, nullptr),
          "clEnqueueFillBuffer");
    std::fill_n(expected_.begin() + static_cast<std::ptrdiff_t>(part.start), part.words, part.value);
  }
  void by_copy() {
    const Part part = some();
    const size_t from = (part.start + kWords / 2) % kWords;
    const size_t words = std::min(part.words, kWords - from);
    check(
        clEnqueueCopyBuffer(subject_.queue, memory_, memory_, 4 * from, 4 * part.start, 4 * words, 0, nullptr, nullptr),
        "clEnqueueCopyBuffer");
    std::copy_n(expected_.begin() + static_cast<std::ptrdiff_t>(from), words,
                expected_.begin() + static_cast<std::ptrdiff_t>(part.start));
  }
  void by_write() {
    const Part part = some();
    const Words words(part.words, part.value);
    check(clEnqueueWriteBuffer(subject_.queue, memory_, CL_TRUE, 4 * part.start, 4 * part.words, words.data(), 0,
                               nullptr, nullptr),
          "clEnqueueWriteBuffer");
    std::copy(words.begin(), words.end(), expected_.begin() + static_cast<std::ptrdiff_t>(part.start));
  }
  void by_write_to_part() {
    const Part part = some();
    const size_t start = part.start % kWords / 2;
    const size_t words = std::min(part.words, kWords / 2 - start);
    const Words all(words, part.value);
    check(clEnqueueWriteBuffer(subject_.queue, second_half_, CL_TRUE, 4 * start, 4 * words, all.data(), 0, nullptr,
                               nullptr),
          "clEnqueueWriteBuffer");
    std::fill_n(expected_.begin() + static_cast<std::ptrdiff_t>(kWords / 2 + start), words, part.value);
  }
  void by_map() {
    const Part part = some();
    cl_int code = CL_SUCCESS;
    auto* words = static_cast<cl_uint*>(clEnqueueMapBuffer(subject_.queue, memory_, CL_TRUE, CL_MAP_WRITE,
                                                           4 * part.start, 4 * part.words, 0, nullptr, nullptr, &code));
    check(code, "clEnqueueMapBuffer");
    for (size_t i = 0; i < part.words; ++i) words[i] = expected_[part.start + i] = part.value;
    check(clEnqueueUnmapMemObject(subject_.queue, memory_, words, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
  }
  void finish() const { subject_.finish(); }
  void check_all() const {
    if (subject_.read(memory_, kWords) != expected_) fail("something that was written isn't there");
  }

 private:
  static constexpr size_t kWords = 4 << 20;
  struct Part {
    size_t start;
    size_t words;
    cl_uint value;
  };
  Part some() {
    const size_t start = random_() % kWords;
    return {start, std::min<size_t>(1 + random_() % 2000, kWords - start), static_cast<cl_uint>(random_())};
  }
  cl_mem make_second_half() {
    const cl_buffer_region half{2 * kWords, 2 * kWords};  // bytes
    cl_int code = CL_SUCCESS;
    cl_mem made = clCreateSubBuffer(memory_, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &half, &code);
    check(code, "clCreateSubBuffer");
    return made;
  }

  std::minstd_rand random_{1};
  Subject subject_;
  cl_kernel flip_ = subject_.kernel("flip");
  cl_mem memory_ = subject_.zeroes(kWords);
  cl_mem second_half_ = make_second_half();
  Words expected_ = Words(kWords);
};

}  // namespace

void ways(const Sizes& sizes) {
  const bool has_kernels = sizes.empty() || sizes[0] != 0;
  Ways ways;
  Rounds rounds;
  while (rounds.next()) {
    rounds.begin();
    if (has_kernels) ways.by_kernel();
    ways.by_fill();
    ways.by_copy();
    ways.by_write();
    ways.by_write_to_part();
    ways.by_map();
    ways.finish();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});  // it is to be a little
  }
  ways.check_all();
  rounds.tell();
}

void busy(const Sizes& sizes, const char* kernel_name) {
  const size_t buffers = !sizes.empty() ? sizes[0] : 4;
  const size_t words = (sizes.size() > 1 ? sizes[1] : 4) << 18;
  const size_t part = std::min(words, (sizes.size() > 2 ? sizes[2] : 1) << 18);
  Subject subject;
  cl_kernel fill = subject.kernel("fill");
  cl_kernel advance = subject.kernel(kernel_name);
  std::vector<cl_mem> all;
  for (size_t next = 0; next < buffers; ++next) {
    all.push_back(subject.buffer(words));
    subject.run(fill, all.back(), static_cast<cl_uint>(next), words);
  }
  subject.finish();
  Rounds rounds;
  while (rounds.next()) {
    subject.run(advance, all[0], rounds.begin(), part);
    subject.finish();
  }
  for (size_t next = 0; next < buffers; ++next)
    expect_advanced(subject, all[next], words, next == 0 ? part : 0, static_cast<cl_uint>(next), rounds.number());
  rounds.tell();
}

void scattered(const Sizes& sizes) {
  const auto size = [&](size_t place, size_t otherwise) { return sizes.size() > place ? sizes[place] : otherwise; };
  Scattered program{size(0, 8), size(1, 4), static_cast<cl_uint>(size(2, 100))};
  program.calibrate(std::chrono::milliseconds{size(3, 5)});
  program.run();
}

void image() {
  constexpr size_t kWidth = 1024;
  constexpr size_t kHeight = 64;
  Subject subject;
  const cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc desc{};
  desc.image_type = CL_MEM_OBJECT_IMAGE2D;
  desc.image_width = kWidth;
  desc.image_height = kHeight;
  Words expected(kWidth * kHeight, 7);
  cl_int code = CL_SUCCESS;
  cl_mem picture =
      clCreateImage(subject.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format, &desc, expected.data(), &code);
  check(code, "clCreateImage");
  const auto map = [&](cl_map_flags flags, size_t x, size_t width, size_t& pitch) {
    const size_t origin[3] = {x, 0, 0};
    const size_t region[3] = {width, kHeight, 1};
    auto* pixels = static_cast<std::byte*>(clEnqueueMapImage(subject.queue, picture, CL_TRUE, flags, origin, region,
                                                             &pitch, nullptr, 0, nullptr, nullptr, &code));
    check(code, "clEnqueueMapImage");
    return pixels;
  };
  Rounds rounds;
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    size_t pitch = 0;
    std::byte* pixels = map(CL_MAP_WRITE_INVALIDATE_REGION, kWidth / 2, kWidth / 2, pitch);
    for (size_t y = 0; y < kHeight; ++y) {
      for (size_t x = kWidth / 2; x < kWidth; ++x) expected[y * kWidth + x] = static_cast<cl_uint>(x * y + round);
      std::memcpy(pixels + y * pitch, &expected[y * kWidth + kWidth / 2], kWidth / 2 * sizeof(cl_uint));
      if (y % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    check(clEnqueueUnmapMemObject(subject.queue, picture, pixels, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
    pixels = map(CL_MAP_READ, 0, kWidth, pitch);
    for (size_t y = 0; y < kHeight; ++y) {
      if (std::memcmp(pixels + y * pitch, &expected[y * kWidth], kWidth * sizeof(cl_uint)) != 0)
        fail("a row of the image");
    }
    check(clEnqueueUnmapMemObject(subject.queue, picture, pixels, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
  }
  rounds.tell();
}

namespace {

// One image of a type, a small part of which is written again and again, and what it must hold.
class Picture {
 public:
  Picture(const Subject& subject, cl_mem_object_type type, std::array<size_t, 3> extent)
      : subject_{subject}, extent_{extent}, expected_(extent[0] * extent[1] * extent[2], 7) {
    const cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};  // a word each
    cl_image_desc desc{};
    desc.image_type = type;
    desc.image_width = extent[0];
    desc.image_height = extent[1];
    desc.image_depth = extent[2];
    desc.image_array_size = type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? extent[1] : extent[2];
    cl_int code = CL_SUCCESS;
    image_ = clCreateImage(subject.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format, &desc, expected_.data(),
                           &code);
    check(code, "clCreateImage");
  }
  void write(cl_uint round) {
    const std::array<size_t, 3> origin{round % (extent_[0] - 1), round / 64 % extent_[1], round / 512 % extent_[2]};
    const std::array<size_t, 3> region{2, 1, 1};
    const cl_uint words[2] = {round, ~round};
    check(clEnqueueWriteImage(subject_.queue, image_, CL_TRUE, origin.data(), region.data(), 0, 0, words, 0, nullptr,
                              nullptr),
          "clEnqueueWriteImage");
    const size_t at = (origin[2] * extent_[1] + origin[1]) * extent_[0] + origin[0];
    expected_[at] = words[0];
    expected_[at + 1] = words[1];
  }
  void check_all() const {
    Words now(expected_.size());
    const std::array<size_t, 3> origin{};
    check(clEnqueueReadImage(subject_.queue, image_, CL_TRUE, origin.data(), extent_.data(), 0, 0, now.data(), 0,
                             nullptr, nullptr),
          "clEnqueueReadImage");
    if (now != expected_) fail("an image of " + std::to_string(extent_[2]) + " slices");
  }

 private:
  const Subject& subject_;
  const std::array<size_t, 3> extent_;
  Words expected_;
  cl_mem image_ = nullptr;
};

}  // namespace

void images() {
  Subject subject;
  Picture pictures[] = {{subject, CL_MEM_OBJECT_IMAGE1D, {4096, 1, 1}},
                        {subject, CL_MEM_OBJECT_IMAGE1D_ARRAY, {2048, 16, 1}},
                        {subject, CL_MEM_OBJECT_IMAGE2D, {1000, 500, 1}},
                        {subject, CL_MEM_OBJECT_IMAGE2D_ARRAY, {256, 256, 8}},
                        {subject, CL_MEM_OBJECT_IMAGE3D, {128, 64, 32}}};
  Rounds rounds;
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    for (Picture& picture : pictures) picture.write(round);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});  // it is to be a little
  }
  for (const Picture& picture : pictures) picture.check_all();
  rounds.tell();
}

// Any number of times there and back: as often as not, a copy is made in between.
void flip() {
  constexpr size_t kWords = 1 << 19;
  Subject subject;
  cl_kernel fill = subject.kernel("fill");
  cl_kernel flip = subject.kernel("flip");
  cl_mem memory = subject.buffer(kWords);
  subject.run(fill, memory, 0, kWords);
  subject.finish();
  Rounds rounds;
  while (rounds.next()) {
    rounds.begin();
    for (int turn = 0; turn < 8; ++turn) {
      subject.run(flip, memory, 0x00010001, kWords / 4);
      check(clFlush(subject.queue), "clFlush");
      subject.run(flip, memory, 0x00010001, kWords / 4);
    }
    subject.finish();
  }
  expect_advanced(subject, memory, kWords, 0, 0, 0);
  rounds.tell();
}

void swap() {
  constexpr size_t kWords = 1 << 21;
  constexpr size_t kPage = 1024;
  constexpr size_t kBlock = 8;
  Subject subject;
  cl_kernel fill = subject.kernel("fill");
  cl_kernel swap = subject.kernel("swap");
  cl_mem memory = subject.buffer(kWords);
  subject.run(fill, memory, 0, kWords);
  subject.finish();
  std::vector<cl_uint> blocks(kPage / kBlock);  // which one is there
  std::iota(blocks.begin(), blocks.end(), 0);
  std::minstd_rand random{1};
  Rounds rounds;
  while (rounds.next()) {
    rounds.begin();
    const cl_uint first = random() % blocks.size();
    const cl_uint second = (first + 1 + random() % (blocks.size() - 1)) % blocks.size();
    std::swap(blocks[first], blocks[second]);
    subject.run(swap, memory, first + 256 * second, kWords / kPage * kBlock);
    subject.finish();
  }
  const Words all = subject.read(memory, kWords);
  for (size_t i = 0; i < kWords; ++i) {
    const size_t from = i / kPage * kPage + blocks[i % kPage / kBlock] * kBlock + i % kBlock;
    if (all[i] != filled(static_cast<cl_uint>(from), 0)) fail("a block isn't where it was put");
  }
  rounds.tell();
}

void state() {
  constexpr size_t kWords = 1 << 16;
  Subject subject;
  cl_kernel wait = subject.kernel("wait_a_while");
  cl_mem memory = subject.zeroes(kWords);
  cl_mem other = nullptr;
  tell_ready();
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "add") subject.run(wait, memory, 1, kWords);
    if (line == "make") other = subject.buffer(1);
    if (line == "free") check(clReleaseMemObject(other), "clReleaseMemObject");
    const Words all = subject.read(memory, kWords);
    if (!std::all_of(all.begin(), all.end(), [&](cl_uint word) { return word == all[0]; })) fail("words differ");
    std::printf("%u\n", all[0]);
    std::fflush(stdout);
  }
}

}  // namespace subject
