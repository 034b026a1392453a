// The pinned memory that staged copies go through, shared by the queues of one context and device.
#pragma once

#include <CL/cl_icd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/copy_threads.hpp"

namespace grus {

// Host memory that a vendor's buffer registers with its driver. The buffer itself is never used.
class PinnedMemory {
 public:
  // Null if the driver or the system has no more.
  static std::unique_ptr<PinnedMemory> make(cl_context context, std::size_t size);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  PinnedMemory(std::byte* data, std::size_t size) : data_{data}, size_{size} {}

  std::byte* data_;
  std::size_t size_;
  cl_mem buffer_ = nullptr;
};

// One part of a copy after the other takes the next slot.
class PinnedRing {
 public:
  static constexpr std::size_t kSlots = 4;

  struct Slot {
    std::byte* memory = nullptr;
    cl_event transfer = nullptr;  // between slot and device, not yet waited for
    CopyThreads::Part part;       // between slot and the program's memory
    bool copying = false;         // `part` is started and not finished
  };

  PinnedRing(std::unique_ptr<PinnedMemory> memory, std::size_t slot_size);
  Slot& slot(std::size_t turn) { return slots_[turn % kSlots]; }
  std::array<Slot, kSlots>& slots() { return slots_; }

 private:
  std::unique_ptr<PinnedMemory> memory_;
  std::array<Slot, kSlots> slots_;
};

// The rings of a context and device, made when they are first needed.
class PinnedRings {
 public:
  PinnedRings(cl_context context, std::size_t slot_size);

  struct GiveBack {
    PinnedRings* rings = nullptr;
    void operator()(PinnedRing* ring) const { rings->give_back(ring); }
  };
  using Lent = std::unique_ptr<PinnedRing, GiveBack>;

  // Null if all are lent, or can't be made.
  Lent borrow();
  std::size_t slot_size() const { return slot_size_; }

 private:
  // Threads that copy at the same time; one without a ring, by the driver's own way, would slow down all.
  static constexpr std::size_t kMostRings = 4;

  void give_back(PinnedRing* ring);

  const cl_context context_;
  const std::size_t slot_size_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<PinnedRing>> free_;
  std::size_t made_ = 0;
  bool can_be_made_ = true;
};

}  // namespace grus
