// An array whose address never changes and whose memory is never given back: address space is reserved once, and the
// kernel supplies zeroed pages as they are touched. Handles point into such arrays, so a handle that was released stays
// readable: the ICD loader reads the dispatch pointer behind a handle before Grus is asked whether it is valid.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace grus {

// The most objects of one type that a process can hold at a time.
inline constexpr std::uint32_t kMaxSlots = 1U << 24;

template <typename T, std::size_t kStride = sizeof(T)>
class ReservedArray {
 public:
  ReservedArray() {
    // Where the address space is limited (ulimit -v), fewer slots are better than none.
    for (capacity_ = kMaxSlots; capacity_ >= 1024; capacity_ /= 4) {
      void* memory = mmap(nullptr, kStride * capacity_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory != MAP_FAILED) {
        base_ = static_cast<std::byte*>(memory);
        return;
      }
    }
    capacity_ = 0;
  }
  ReservedArray(const ReservedArray&) = delete;
  ReservedArray& operator=(const ReservedArray&) = delete;

  T* at(std::uint32_t slot) const { return reinterpret_cast<T*>(base_ + slot * kStride); }
  std::uint32_t capacity() const { return capacity_; }

  // Which slot a pointer is the start of; capacity() if none.
  std::uint32_t slot_of(const void* pointer) const {
    const auto offset = reinterpret_cast<std::uintptr_t>(pointer) - reinterpret_cast<std::uintptr_t>(base_);
    if (offset >= kStride * capacity_ || offset % kStride != 0) return capacity_;
    return static_cast<std::uint32_t>(offset / kStride);
  }

 private:
  std::byte* base_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace grus
