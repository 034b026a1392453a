// While a move stops the program, no build comes to its end: what was built by then is there already, and what is built
// meanwhile is built again there, when results flow again.
#pragma once

#include <atomic>
#include <cstdint>

namespace grus {

// A build that has to be done again because its session moved meanwhile. The next move waits for it: else a program
// that is moved more often than it can be built would never have it.
class BuildAgain {
 public:
  BuildAgain() { g_count.fetch_add(1, std::memory_order_relaxed); }
  ~BuildAgain() { g_count.fetch_sub(1, std::memory_order_release); }
  BuildAgain(const BuildAgain&) = delete;
  BuildAgain& operator=(const BuildAgain&) = delete;

  static bool is_any() { return g_count.load(std::memory_order_acquire) != 0; }

 private:
  static std::atomic<std::uint32_t> g_count;
};

class HeldBuilds {
 public:
  HeldBuilds() { g_held.store(true, std::memory_order_release); }
  ~HeldBuilds();
  HeldBuilds(const HeldBuilds&) = delete;
  HeldBuilds& operator=(const HeldBuilds&) = delete;

  // Called inside the gate, and waits outside. If none are held when it returns, none will be before the thread leaves
  // the gate or the gate is closed.
  static void wait();

 private:
  static std::atomic<bool> g_held;
};

}  // namespace grus
