// An array whose address never changes and whose memory is never given back: address space is reserved once, and the
// kernel supplies zeroed pages as they are touched. Handles point into such arrays, so a handle that was released stays
// readable: the ICD loader reads the dispatch pointer behind a handle before Grus is asked whether it is valid.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "base/sanitizer.hpp"

namespace grus {

// The most objects of one type that a process can hold at a time. The sanitizer reads all of them, used or not.
inline constexpr std::uint32_t kMaxSlots = sanitizer::kKnowsAddresses ? 1U << 16 : 1U << 24;

template <typename T, std::size_t kStride = sizeof(T)>
class ReservedArray {
 public:
  constexpr ReservedArray() = default;
  ReservedArray(const ReservedArray&) = delete;
  ReservedArray& operator=(const ReservedArray&) = delete;

  // Has no slots before this. Where the address space is limited (ulimit -v), fewer are better than none.
  void reserve() {
    for (std::size_t slots = kMaxSlots; slots >= 1024; slots /= 4) {
      void* memory =
          mmap(nullptr, kStride * slots, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) continue;
      base_ = reinterpret_cast<std::uintptr_t>(memory);
      bytes_ = kStride * slots;
      sanitizer::look_for_pointers_in(memory, bytes_);
      return;
    }
  }

  // For an array whose owner ends before the process does.
  void give_back() {
    if (bytes_ == 0) return;
    sanitizer::look_no_more_in(reinterpret_cast<void*>(base_), bytes_);
    munmap(reinterpret_cast<void*>(base_), bytes_);
    bytes_ = 0;
  }

  T* at(std::uint32_t slot) const { return reinterpret_cast<T*>(base_ + slot * kStride); }
  std::uint32_t capacity() const { return static_cast<std::uint32_t>(bytes_ / kStride); }
  // Whether a pointer is the start of a slot.
  bool has(const void* pointer) const {
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(pointer) - base_;
    return offset < bytes_ && offset % kStride == 0;
  }

 private:
  std::uintptr_t base_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace grus
