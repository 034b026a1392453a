// Moving a virtual machine that uses a GPU from one QEMU to another, and giving it a card or taking it away.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "vm/machine.hpp"

namespace grus::vm {

struct MigrationOrder {
  enum class Kind : std::uint8_t {
    live,           // programs go on at the proxy while the machine travels
    stop_and_copy,  // they wait, with what they had in the guest's memory
  };
  Kind kind = Kind::live;
  bool falls_back = false;  // to the other, if the proxy has no room for the programs
  std::string proxy;
  std::chrono::seconds unplug{30};  // how long a guest may take to let go of the card
  std::function<void(const std::string&)> on_step;
};

// What became of it: {"ok", "error", "machine", "runs_at", "gpu", "began", "steps", "sessions", "returned", "ended",
// "fell_back", "migration"}. Whatever goes wrong, the guest runs on at one side or the other, and "error" says at which
// and on what. `cancelled` is looked at until the machine has gone.
json migrate(const Machine& source, const Machine& destination, const MigrationOrder& order,
             const std::atomic<bool>& cancelled);

// The programs leave for the proxy, and the card goes; or comes, and they return. As migrate() does it.
json detach_gpu(const Machine& machine, const MigrationOrder& order);
json attach_gpu(const Machine& machine, const MigrationOrder& order);

}  // namespace grus::vm
