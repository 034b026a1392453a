// What commands may have written to an object since a move looked at it last. Kernels may write anywhere; of what the
// host writes, fills and copies the range is known, so that nothing else has to be looked at.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "base/spin_lock.hpp"

namespace grus {

struct Range {
  std::size_t offset = 0;
  std::size_t size = 0;
};

struct DirtyParts {
  bool is_all = false;
  std::vector<Range> ranges;  // in no order; nothing if it is all

  bool empty() const { return !is_all && ranges.empty(); }
  void add(const DirtyParts& more);
  // What they are of an object of that size, in order, apart from each other, and widened to whole units.
  std::vector<Range> rounded(std::size_t size, std::size_t unit) const;
};

class Dirty {
 public:
  // While nothing moves all is dirty, and a command only looks.
  void add_all() { is_all_.store(true, std::memory_order_relaxed); }
  void add(Range range) {
    if (!is_all_.load(std::memory_order_relaxed)) add_to_ranges(range);
  }
  // From here on nothing of it is dirty.
  DirtyParts take();

 private:
  static constexpr std::size_t kMostRanges = 4096;
  void add_to_ranges(Range range);

  std::atomic<bool> is_all_{true};
  SpinLock lock_;  // guards what follows
  std::vector<Range> ranges_;
};

}  // namespace grus
