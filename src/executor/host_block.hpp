// Rows of bytes in the program's memory, as reads and writes of rectangles and images name them. On a channel they are
// packed.
#pragma once

#include <cstddef>

#include "executor/copy_threads.hpp"

namespace grus {

struct HostBlock {
  std::byte* start = nullptr;
  std::size_t row = 0;  // bytes
  std::size_t rows = 1;
  std::size_t slices = 1;
  std::size_t row_pitch = 0;
  std::size_t slice_pitch = 0;

  static HostBlock of(const void* start, std::size_t size) {
    return {static_cast<std::byte*>(const_cast<void*>(start)), size, 1, 1, size, size};
  }

  std::size_t size() const { return row * rows * slices; }
  bool is_packed() const { return (rows == 1 || row_pitch == row) && (slices == 1 || slice_pitch == row * rows); }
  // From its first byte to behind its last.
  std::size_t reach() const { return (slices - 1) * slice_pitch + (rows - 1) * row_pitch + row; }
  bool overlaps(const HostBlock& other) const {
    return start < other.start + other.reach() && other.start < start + reach();
  }

  std::byte* row_at(std::size_t slice, std::size_t number) const {
    return start + slice * slice_pitch + number * row_pitch;
  }
  // The same rows without gaps.
  HostBlock packed_at(const std::byte* place) const {
    return {const_cast<std::byte*>(place), row, rows, slices, row, row * rows};
  }
};

// A copy that goes on beside its caller, if it is large and there are cores for that; else it is over at once.
class CopyBeside {
 public:
  CopyBeside() = default;
  ~CopyBeside() { finish(); }
  CopyBeside(const CopyBeside&) = delete;
  CopyBeside& operator=(const CopyBeside&) = delete;

  void start(std::byte* to, const std::byte* from, std::size_t size, CopyThreads::Stores stores);
  void finish();

 private:
  CopyThreads::Part part_;
  bool is_started_ = false;
};

// Large ones with several threads, where there are cores for them.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t size);
void copy_block(const HostBlock& to, const HostBlock& from);

}  // namespace grus
