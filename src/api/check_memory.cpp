#include "api/check_memory.hpp"

#include <cstdint>

namespace grus::api {

bool complete_pitches(const Triple& region, std::size_t& row_pitch, std::size_t& slice_pitch) {
  if (region[0] == 0 || region[1] == 0 || region[2] == 0) return false;
  if (row_pitch == 0) row_pitch = region[0];
  std::size_t tight_slice = 0;
  if (row_pitch < region[0] || __builtin_mul_overflow(row_pitch, region[1], &tight_slice)) return false;
  if (slice_pitch == 0) slice_pitch = tight_slice;
  return slice_pitch >= tight_slice && slice_pitch % row_pitch == 0;
}

std::size_t end_of(const Triple& origin, const Triple& region, std::size_t row_pitch, std::size_t slice_pitch) {
  std::size_t slices = 0;
  std::size_t rows = 0;
  std::size_t end = 0;
  const bool overflowed =
      __builtin_add_overflow(origin[2], region[2] - 1, &slices) ||
      __builtin_mul_overflow(slices, slice_pitch, &slices) || __builtin_add_overflow(origin[1], region[1] - 1, &rows) ||
      __builtin_mul_overflow(rows, row_pitch, &rows) || __builtin_add_overflow(origin[0], region[0], &end) ||
      __builtin_add_overflow(end, rows, &end) || __builtin_add_overflow(end, slices, &end);
  return overflowed ? SIZE_MAX : end;
}

bool overlap(const Triple& from, const Triple& to, const Triple& region, std::size_t row_pitch,
             std::size_t slice_pitch) {
  const std::size_t slice_size = (region[1] - 1) * row_pitch + region[0];
  const std::size_t block_size = (region[2] - 1) * slice_pitch + slice_size;
  const auto start = [&](const Triple& origin) { return origin[2] * slice_pitch + origin[1] * row_pitch + origin[0]; };
  const std::size_t from_start = start(from);
  const std::size_t to_start = start(to);
  const std::size_t low = std::min(from_start, to_start);
  const std::size_t distance = std::max(from_start, to_start) - low;
  if (distance >= block_size) return false;
  // They start so close that they share bytes unless one lies in the gaps of the other.
  const std::size_t in_slice = distance % slice_pitch;
  const std::size_t in_row = in_slice % row_pitch;
  const bool rows_apart = in_row >= region[0] && row_pitch - in_row >= region[0];
  const bool slices_apart = in_slice >= slice_size && slice_pitch - in_slice >= slice_size;
  return !rows_apart && !slices_apart;
}

bool is_within(const ImageFacts& image, const Triple& origin, const Triple& region) {
  const Triple extent = image.extent();
  for (int dimension = 0; dimension < 3; ++dimension) {
    if (region[dimension] == 0 || overflows(origin[dimension], region[dimension], extent[dimension])) return false;
  }
  return true;
}

}  // namespace grus::api
