#include "command/held_builds.hpp"

#include "command/gate.hpp"

namespace grus {

constinit std::atomic<std::uint32_t> BuildAgain::g_count{0};
constinit std::atomic<bool> HeldBuilds::g_held{false};

HeldBuilds::~HeldBuilds() {
  g_held.store(false, std::memory_order_release);
  g_held.notify_all();
}

void HeldBuilds::wait() {
  while (g_held.load(std::memory_order_acquire)) {
    const Gate::Leave leave{Gate::Place::waiting};
    g_held.wait(true, std::memory_order_acquire);
  }
}

}  // namespace grus
