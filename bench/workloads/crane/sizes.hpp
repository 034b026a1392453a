// Sizes of launches and of the data they work on.
#pragma once

#include <algorithm>
#include <bit>

#include "frame/frame.hpp"

namespace workload {

// The largest power of two up to `most` that the device takes as a group's size.
inline size_t group_size(const Frame& frame, size_t most = 256) {
  return std::bit_floor(std::min(most, frame.max_group_size()));
}

inline std::string define(const char* name, size_t value) {
  return std::string{" -D"} + name + "=" + std::to_string(value);
}

}  // namespace workload
