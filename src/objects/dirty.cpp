#include "objects/dirty.hpp"

#include <algorithm>
#include <mutex>

namespace grus {

void DirtyParts::add(const DirtyParts& more) {
  is_all |= more.is_all;
  ranges.insert(ranges.end(), more.ranges.begin(), more.ranges.end());
  if (is_all) ranges.clear();
}

std::vector<Range> DirtyParts::rounded(std::size_t size, std::size_t unit) const {
  if (is_all) return {{0, size}};
  std::vector<Range> sorted = ranges;
  std::sort(sorted.begin(), sorted.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
  std::vector<Range> apart;
  for (const Range& range : sorted) {
    const std::size_t start = range.offset / unit * unit;
    const std::size_t end = std::min((range.offset + range.size + unit - 1) / unit * unit, size);
    if (!apart.empty() && start <= apart.back().offset + apart.back().size) {
      apart.back().size = std::max(apart.back().size, end - apart.back().offset);
    } else {
      apart.push_back({start, end - start});
    }
  }
  return apart;
}

DirtyParts Dirty::take() {
  DirtyParts taken;
  taken.is_all = is_all_.exchange(false, std::memory_order_relaxed);
  const std::lock_guard lock{lock_};
  taken.ranges.swap(ranges_);
  if (taken.is_all) taken.ranges.clear();
  return taken;
}

// One that goes on where the last ended is part of it. Of many nobody keeps a list.
void Dirty::add_to_ranges(Range range) {
  const std::lock_guard lock{lock_};
  if (!ranges_.empty() && ranges_.back().offset + ranges_.back().size == range.offset) {
    ranges_.back().size += range.size;
  } else if (ranges_.size() < kMostRanges) {
    ranges_.push_back(range);
  } else {
    ranges_.clear();
    add_all();
  }
}

}  // namespace grus
