#include "move/slicer.hpp"

#include "base/thread.hpp"
#include "move/when_idle.hpp"

namespace grus::move {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kShort = 1ms;
constexpr auto kLong = 4ms;
constexpr std::size_t kMost = 4096;
constexpr auto kPause = 200us;  // where the device does nothing

}  // namespace

Slicer::Slicer() : slices_{HoldBack::instance()}, thread_{start_thread("grus-slices", [this] { run(); })} {}

Slicer::~Slicer() {
  is_over_ = true;
  thread_.join();
}

bool Slicer::wait_until_idle() {
  std::vector<WhenIdle> all;
  for (Executor* const executor : executors_in_use()) all.emplace_back(*executor);
  for (const WhenIdle& one : all) {
    while (!one.wait(5ms)) {
      if (is_over_) return false;
    }
  }
  return true;
}

void Slicer::run() {
  std::size_t slice = 1;
  while (!is_over_) {
    const auto start = Clock::now();
    if (!wait_until_idle()) return;
    const auto took = Clock::now() - start;
    if (is_regular_) {
      if (took < kShort && slice < kMost) slice *= 2;
      if (took > kLong && slice > 1) slice /= 2;
    }
    is_regular_.store(true, std::memory_order_release);
    slices_.allow(slice);
    if (took < kPause) std::this_thread::sleep_for(kPause);
  }
}

}  // namespace grus::move
