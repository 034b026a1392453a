// From the moment a move starts, the device is only given what it does in a few milliseconds; the rest waits above the
// seam, and runs at the destination.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "command/hold_back.hpp"
#include "move/when_idle.hpp"

namespace grus::move {

class Slicer {
 public:
  Slicer();
  ~Slicer();
  Slicer(const Slicer&) = delete;
  Slicer& operator=(const Slicer&) = delete;

  // Whether the device has done what it was given before.
  bool is_regular() const { return is_regular_.load(std::memory_order_acquire); }

 private:
  void run();
  bool wait_for(const std::vector<WhenIdle>& mark) const;  // false if it is over

  HoldBack::Slices slices_;
  std::atomic<bool> is_over_{false};
  std::atomic<bool> is_regular_{false};
  std::thread thread_;
};

}  // namespace grus::move
