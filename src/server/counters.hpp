// What a session has done so far. The worker counts in memory that it shares with the server, who looks whenever it
// wants to, even after the worker was killed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "channel/shared_memory.hpp"
#include "server/lease_page.hpp"

namespace grus::server {

struct Counters {
  using Count = std::atomic<std::uint64_t>;
  static constexpr std::size_t kTypes = 8;

  // Of the thread that reads the client's messages
  Count bytes_in;
  Count commands;
  Count round_trips;  // questions that the client waits for
  Count memory;       // bytes, in buffers and images
  Count memory_peak;
  Count used_at;      // when it last used a device's memory, by the steady clock
  Count on_device;    // bytes in memory of devices' own
  Count swapped_out;  // bytes that were moved out of it and are in host memory now
  Count swap_used;    // bytes that they take there
  Count moved_out;    // bytes, so far
  Count moved_in;
  Count objects[kTypes];  // by type, now
  Count bytes_shared;     // read through shared memory, and no part of what was sent
  Count pages_in;         // bytes that came straight from another server
  Count move_way;         // a MoveStage's, if the client moves the session
  Count move_done;        // bytes of its phase
  Count move_all;
  // Of whoever sends, one at a time
  alignas(64) Count bytes_out;
  Count pages_out;  // bytes that went straight to another server
  // Of the server, for the worker: how often its tenant's quota was changed
  Count quotas;
  // Names of devices that a context was made for, a line each; and why the session has ended
  alignas(64) char devices[1024];
  char why[512];

  // Each has one writer.
  static void add(Count& count, std::uint64_t more) {
    count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  template <std::size_t kSize>
  static void append(char (&to)[kSize], std::string_view text) {
    const std::size_t known = std::find(to, to + kSize - 1, '\0') - to;
    std::copy_n(text.data(), std::min(text.size(), kSize - 1 - known), to + known);
  }
};

nlohmann::ordered_json to_json(const Counters& counters);
std::string why_ended(const Counters& counters);  // empty if the worker didn't say

// The memory that they are in, and what a worker has its devices by.
class SharedCounters {
 public:
  static SharedCounters make() { return SharedCounters{channel::SharedMemory::make({.rings = sizeof(Shared)})}; }
  static SharedCounters map(channel::Descriptor page) {
    return SharedCounters{channel::SharedMemory::map(std::move(page), {.rings = sizeof(Shared)})};
  }

  explicit operator bool() const { return memory_ != nullptr; }
  int descriptor() const { return memory_->descriptor(); }
  Counters& operator*() const { return shared().counters; }
  Counters* operator->() const { return &**this; }
  LeasePage& leases() const { return shared().leases; }

 private:
  struct Shared {
    Counters counters;
    LeasePage leases;
  };
  Shared& shared() const { return *reinterpret_cast<Shared*>(memory_->rings()); }
  explicit SharedCounters(std::shared_ptr<channel::SharedMemory> memory) : memory_{std::move(memory)} {}
  std::shared_ptr<channel::SharedMemory> memory_;
};

}  // namespace grus::server
