// What the cases share: the device, words to move, and how a wrong one is reported.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "opencl.hpp"

namespace bench {

using Words = std::vector<uint32_t>;

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr size_t kPage = 4 * kKiB;
constexpr size_t kPageWords = kPage / sizeof(uint32_t);

inline void require(bool holds, const char* what) {
  if (!holds) throw Failure(what);
}

inline Words counting_words(size_t bytes) {
  Words words(bytes / sizeof(uint32_t));
  std::iota(words.begin(), words.end(), 1U);
  return words;
}

// Changes one word of each page, so that data left over from the previous run is noticed.
inline void stamp(uint32_t* words, size_t bytes, uint32_t with) {
  for (size_t i = 0; i < bytes / sizeof(uint32_t); i += kPageWords) words[i] = with + static_cast<uint32_t>(i);
}

// A case is a type with these members and run().
struct Base {
  explicit Base(const Device& on) : device(on) {}
  const Device& device;
  void prepare() {}
  void verify() {}
};

}  // namespace bench
