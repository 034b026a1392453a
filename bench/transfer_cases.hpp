// Cases about transfers, maps and the creation of buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "case_parts.hpp"

namespace bench {

struct SmallReads : Base {
  size_t calls;
  Words expected = counting_words(16 * kPage);
  Words seen = Words(expected.size());
  Buffer buffer;
  SmallReads(const Device& on, size_t calls_per_run) : Base(on), calls(calls_per_run), buffer(on.buffer(16 * kPage)) {
    device.write(buffer.get(), 0, 16 * kPage, expected.data());
  }
  void prepare() { std::ranges::fill(seen, 0U); }
  void run() {
    for (size_t i = 0; i < calls; ++i) device.read(buffer.get(), i % 16 * kPage, kPage, &seen[i % 16 * kPageWords]);
  }
  void verify() { require(seen == expected, "a 4 KiB read brought other data"); }
};

struct SmallWrites : SmallReads {
  using SmallReads::SmallReads;
  uint32_t runs = 0;
  void prepare() { stamp(expected.data(), 16 * kPage, ++runs); }
  void run() {
    for (size_t i = 0; i < calls; ++i)
      device.write(buffer.get(), i % 16 * kPage, kPage, &expected[i % 16 * kPageWords]);
  }
  void verify() {
    device.read(buffer.get(), 0, 16 * kPage, seen.data());
    SmallReads::verify();
  }
};

struct Writes : Base {
  static constexpr size_t kSize = kMiB;
  static constexpr size_t kCalls = 64;
  Words words = counting_words(kSize);
  Words seen = Words(words.size());
  Buffer buffer;
  uint32_t runs = 0;
  explicit Writes(const Device& on) : Base(on), buffer(on.buffer(kSize)) {}
  void prepare() { stamp(words.data(), kSize, ++runs); }
  void run() const {
    for (size_t i = 0; i < kCalls; ++i) device.write(buffer.get(), 0, kSize, words.data());
  }
  void verify() {
    device.read(buffer.get(), 0, kSize, seen.data());
    require(seen == words, "a 1 MiB write brought other data");
  }
};

// A usual program: everything it computes goes there and comes back.
struct Saxpy : Base {
  static constexpr size_t kSize = kMiB;
  static constexpr size_t kTimes = 200;
  Kernel kernel;
  std::vector<float> values = std::vector<float>(kSize / sizeof(float));
  Buffer buffer;
  explicit Saxpy(const Device& on) : Base(on), kernel(on.kernel("saxpy")), buffer(on.buffer(kSize)) {
    cl_mem y = buffer.get();
    const float a = 1;
    check(clSetKernelArg(kernel.get(), 0, sizeof y, &y), "clSetKernelArg");
    check(clSetKernelArg(kernel.get(), 1, sizeof a, &a), "clSetKernelArg");
  }
  void prepare() { std::ranges::fill(values, 0.0F); }
  void run() {
    const size_t items = values.size();
    for (size_t i = 0; i < kTimes; ++i) {
      device.write(buffer.get(), 0, kSize, values.data());
      check(clEnqueueNDRangeKernel(device.queue(), kernel.get(), 1, nullptr, &items, nullptr, 0, nullptr, nullptr),
            "clEnqueueNDRangeKernel");
      device.read(buffer.get(), 0, kSize, values.data());
    }
  }
  void verify() const {
    require(std::ranges::all_of(values, [](float value) { return value == float{kTimes}; }),
            "saxpy computed something else");
  }
};

// What only the driver can answer, and answers at once.
struct RoundTrips : Base {
  size_t calls;
  RoundTrips(const Device& on, size_t calls_per_run) : Base(on), calls(calls_per_run) {}
  void run() const {
    for (size_t i = 0; i < calls; ++i) {
      cl_int code = CL_SUCCESS;
      cl_sampler sampler = clCreateSampler(device.context(), CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &code);
      check(code, "clCreateSampler");
      check(clReleaseSampler(sampler), "clReleaseSampler");
    }
  }
};

// Each map must show what the host wrote through the one before it.
struct Maps : Base {
  size_t calls;
  size_t size;
  uint32_t written = 0;
  std::vector<std::byte> host;  // only for USE_HOST_PTR
  Buffer buffer;
  Maps(const Device& on, size_t calls_per_run, size_t bytes, cl_mem_flags flags)
      : Base(on), calls(calls_per_run), size(bytes) {
    if (flags & CL_MEM_USE_HOST_PTR) host.resize(size);
    buffer = on.buffer(size, flags, host.empty() ? nullptr : host.data());
    device.write(buffer.get(), size - sizeof written, sizeof written, &written);
  }
  void run() {
    for (size_t i = 0; i < calls; ++i) {
      auto* mapped = static_cast<std::byte*>(device.map(buffer.get(), size, CL_MAP_READ | CL_MAP_WRITE));
      uint32_t seen = 0;
      std::memcpy(&seen, mapped + size - sizeof seen, sizeof seen);
      require(seen == written, "a map shows old data");
      ++written;
      std::memcpy(mapped + size - sizeof written, &written, sizeof written);
      device.unmap(buffer.get(), mapped);
    }
    device.finish();
  }
};

struct Creations : Base {
  size_t calls;
  Creations(const Device& on, size_t calls_per_run) : Base(on), calls(calls_per_run) {}
  void run() const {
    for (size_t i = 0; i < calls; ++i) device.buffer(64 * kKiB);
  }
};

struct DeviceCopy : Base {
  static constexpr size_t kSize = 256 * kMiB;
  Words expected = counting_words(kSize);
  Buffer from, to;
  uint32_t runs = 0;
  explicit DeviceCopy(const Device& on) : Base(on), from(on.buffer(kSize)), to(on.buffer(kSize)) {
    device.write(from.get(), 0, kSize, expected.data());
  }
  void prepare() {
    expected.back() = ++runs;
    device.write(from.get(), kSize - sizeof runs, sizeof runs, &runs);
  }
  void run() const {
    check(clEnqueueCopyBuffer(device.queue(), from.get(), to.get(), 0, 0, kSize, 0, nullptr, nullptr),
          "clEnqueueCopyBuffer");
    device.finish();
  }
  void verify() const {
    Words seen(expected.size());
    device.read(to.get(), 0, kSize, seen.data());
    require(seen == expected, "a copy on the device brought other data");
  }
};

enum class HostMemory { ordinary, pinned };

// From or to memory of the program's own, or the way bandwidth tests do it: a mapped ALLOC_HOST_PTR buffer's pointer is
// the host side of transfers to and from another buffer.
struct Bulk : Base {
  size_t size;
  Words own;
  Buffer pinned;
  uint32_t* host;
  Buffer buffer;
  uint32_t runs = 0;

  Bulk(const Device& on, size_t bytes, HostMemory memory) : Base(on), size(bytes), buffer(on.buffer(bytes)) {
    if (memory == HostMemory::ordinary) {
      own.resize(size / sizeof(uint32_t));
      host = own.data();
    } else {
      pinned = on.buffer(size, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR);
      host = static_cast<uint32_t*>(device.map(pinned.get(), size, CL_MAP_READ | CL_MAP_WRITE));
    }
    fill();
    device.write(buffer.get(), 0, size, host);
  }
  ~Bulk() {
    if (!pinned) return;
    clEnqueueUnmapMemObject(device.queue(), pinned.get(), host, 0, nullptr, nullptr);
    clFinish(device.queue());
  }
  void fill() const { std::iota(host, host + size / sizeof(uint32_t), 1U); }
  // Compares `count` words from the page at `first` on with what fill and stamp made.
  void require_contents(const uint32_t* words, size_t first, size_t count, bool stamped) const {
    uint32_t wrong = 0;
    for (size_t page = 0; page < count; page += kPageWords) {
      const auto before = static_cast<uint32_t>(first + page);
      wrong |= words[page] ^ (stamped ? runs + before : before + 1);
      for (uint32_t i = 1; i < kPageWords; ++i) wrong |= words[page + i] ^ (before + i + 1);
    }
    require(wrong == 0, "a bulk transfer brought other data");
  }
};

struct BulkWrite : Bulk {
  using Bulk::Bulk;
  void prepare() { stamp(host, size, ++runs); }
  void run() const { device.write(buffer.get(), 0, size, host); }
  void verify() const {
    Words piece(4 * kMiB);
    for (size_t offset = 0; offset < size; offset += piece.size() * sizeof(uint32_t)) {
      const size_t count = std::min(piece.size(), (size - offset) / sizeof(uint32_t));
      device.read(buffer.get(), offset, count * sizeof(uint32_t), piece.data());
      require_contents(piece.data(), offset / sizeof(uint32_t), count, true);
    }
  }
};

struct BulkRead : Bulk {
  using Bulk::Bulk;
  void prepare() const { stamp(host, size, ~0U); }
  void run() const { device.read(buffer.get(), 0, size, host); }
  void verify() const { require_contents(host, 0, size / sizeof(uint32_t), false); }
};

}  // namespace bench
