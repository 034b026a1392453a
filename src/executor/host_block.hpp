// Rows of bytes in the program's memory, as reads and writes of rectangles and images name them. On a channel they are
// packed.
#pragma once

#include <cstring>

#include "objects/memory.hpp"

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

  void pack(std::byte* to) const {
    each_row([&](std::byte* place) {
      std::memcpy(to, place, row);
      to += row;
    });
  }
  void unpack(const std::byte* from) const {
    each_row([&](std::byte* place) {
      std::memcpy(place, from, row);
      from += row;
    });
  }

 private:
  void each_row(auto visit) const {
    for (std::size_t slice = 0; slice < slices; ++slice) {
      for (std::size_t number = 0; number < rows; ++number) visit(start + slice * slice_pitch + number * row_pitch);
    }
  }
};

}  // namespace grus
