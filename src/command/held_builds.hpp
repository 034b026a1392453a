// While a move stops the program, no build comes to its end: what was built by then is there already, and what is built
// meanwhile is built again there, when results flow again.
#pragma once

#include <atomic>

namespace grus {

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
