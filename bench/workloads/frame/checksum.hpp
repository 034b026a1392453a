// A checksum of results: the same bytes, the same number, on every machine.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace workload {

// FNV-1a over 64-bit words, with the tail as one word.
class Checksum {
 public:
  void add(const void* bytes, size_t size) {
    const auto* next = static_cast<const unsigned char*>(bytes);
    for (; size >= sizeof(std::uint64_t); size -= sizeof(std::uint64_t), next += sizeof(std::uint64_t)) {
      std::uint64_t word;
      std::memcpy(&word, next, sizeof word);
      mix(word);
    }
    std::uint64_t tail = 0;
    std::memcpy(&tail, next, size);
    if (size != 0) mix(tail);
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size() * sizeof(T));
  }
  std::uint64_t value() const { return value_; }

 private:
  void mix(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3;
    value_ ^= value_ >> 29;  // high bits of a word must reach the low ones
  }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace workload
