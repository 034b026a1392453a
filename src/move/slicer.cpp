#include "move/slicer.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/thread.hpp"

namespace grus::move {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// What a slice is to take.
constexpr auto kShort = 500us;
constexpr auto kLong = 2ms;
constexpr auto kLongest = 15ms;  // of a command, for another to be under way with it
constexpr std::size_t kMost = 4096;
constexpr auto kPause = 200us;  // where the device does nothing

// Of everything that was given to a device so far.
using Mark = std::vector<WhenIdle>;

Mark mark_now() {
  Mark all;
  for (Executor* const executor : executors_in_use()) all.emplace_back(*executor);
  return all;
}

}  // namespace

Slicer::Slicer() : slices_{HoldBack::instance()}, thread_{start_thread("grus-slices", [this] { run(); })} {}

Slicer::~Slicer() {
  is_over_ = true;
  thread_.join();
}

bool Slicer::wait_for(const Mark& mark) const {
  return std::all_of(mark.begin(), mark.end(), [this](const WhenIdle& one) {
    while (!one.wait(5ms)) {
      if (is_over_) return false;
    }
    return true;
  });
}

// Two slices are under way, so that the device always has something to do; but of very long commands only one.
void Slicer::run() {
  if (!wait_for(mark_now())) return;
  is_regular_.store(true, std::memory_order_release);
  std::size_t slice = 1;
  std::size_t most_under_way = 1;
  std::deque<Mark> under_way;
  auto last = Clock::now();
  while (!is_over_) {
    if (under_way.size() < most_under_way) {
      slices_.allow(slice);
      under_way.push_back(mark_now());
      continue;
    }
    if (!wait_for(under_way.front())) return;
    under_way.pop_front();
    const auto now = Clock::now();
    const auto took = now - std::exchange(last, now);
    if (took < kShort && slice < kMost) slice *= 2;
    if (took > kLong && slice > 1) slice /= 2;
    most_under_way = took > kLongest ? 1 : 2;
    if (took < kPause) std::this_thread::sleep_for(kPause);
  }
}

}  // namespace grus::move
