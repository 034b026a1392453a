// Moves this process's session to another executor while the program runs.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "move/plan.hpp"

namespace grus::move {

using Clock = std::chrono::steady_clock;

struct Order {
  enum class Kind : std::uint8_t { move, suspend, checkpoint, restore };
  Kind kind = Kind::move;
  std::string to;        // a server's address, or "local"
  std::string device;    // part of a name there, or PLATFORM:DEVICE, several with commas; empty: any
  std::string avoid;     // not there: the same
  std::string file;      // of a checkpoint, or for a suspended session's memory
  bool dry_run = false;  // only the plan
  bool overlap = true;   // reading and writing
  bool unload = false;   // a suspended session's drivers
  int rounds = 10;       // of copying before the stop, at most; 0: copy in the stop
  std::optional<std::chrono::milliseconds> max_stop;
  std::uint64_t bytes_per_second = 0;  // at most; 0: as fast as it goes
  bool paces_stop = false;             // in the stop, too: as if the link were no faster
  memory::Comparison comparison;
};

struct Phase {
  std::string name;
  Clock::time_point start;
  Clock::time_point end;
  memory::Copied copied;
};

struct Progress {
  std::string phase;
  std::uint64_t done = 0;  // bytes of this phase that were looked at
  std::uint64_t all = 0;   // at most
  double bytes_per_second = 0;
  std::chrono::microseconds predicted_stop{0};
};

struct Report {
  Plan plan;
  std::vector<Phase> phases;
  std::chrono::microseconds stop{0};   // how long results waited
  std::chrono::microseconds drain{0};  // of that, for the device to finish what it had
  std::uint64_t copied_running = 0;    // bytes sent
  std::uint64_t copied_stopped = 0;
  std::uint64_t built_stopped = 0;   // programs
  std::vector<std::string> staying;  // why drivers couldn't be unloaded
};

// Where the session is, or was before it was suspended.
struct Whereabouts {
  std::string to;
  std::string device;  // by its numbers, or theirs: only of one that is suspended
  bool is_suspended = false;
};
Whereabouts whereabouts();

// Moves, suspends (everything is held back until the next move), writes a checkpoint, or goes back to one.
// Throws Refused; then the program goes on where it was, and nothing is left at the destination.
Report move_session(const Order& order, const std::function<void(const Progress&)>& on_progress,
                    const std::atomic<bool>& cancelled);

}  // namespace grus::move
