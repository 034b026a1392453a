#include "executor/staging.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "base/per_process.hpp"
#include "executor/copy_threads.hpp"
#include "executor/pinned_ring.hpp"
#include "executor/vendor.hpp"

namespace grus {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// From this size on, what the threads save is more than what waking them costs.
constexpr std::size_t kLeastSize = 2 * kMiB;
// Large enough that sending a chunk costs little beside its transfer, small enough that a ring may stay in a cache.
constexpr std::size_t kSlotSize = 8 * kMiB;
// Smaller copies are cut smaller, so that copying and transferring still overlap.
constexpr std::size_t kLeastChunk = kMiB;
constexpr std::size_t kLeastChunks = 8;
constexpr auto kStoresOfReads = CopyThreads::Stores::streaming;
// For tests: several chunks in copies that are quickly compared.
constexpr std::size_t kSlotSizeIfAlways = std::size_t{64} << 10;

enum class Mode { off, where_it_gains, always };

Mode mode_from_environment() {
  const char* value = std::getenv("GRUS_STAGING");
  const std::string_view name = value ? value : "";
  if (name == "off") return Mode::off;
  if (name == "always") return Mode::always;
  if (!name.empty()) log::warn("staging", "GRUS_STAGING={}: only off and always are known", name);
  return Mode::where_it_gains;
}

bool has_its_own_memory(cl_device_id device) {
  const auto query = functions(device).clGetDeviceInfo;
  cl_device_type type = 0;
  cl_bool shared = CL_TRUE;
  if (query(device, CL_DEVICE_TYPE, sizeof type, &type, nullptr) != CL_SUCCESS) return false;
  if (query(device, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof shared, &shared, nullptr) != CL_SUCCESS) return false;
  return !(type & CL_DEVICE_TYPE_CPU) && shared == CL_FALSE;
}

// Which rings there are. They belong to the queues that use them and go with the last.
class RingsByDevice {
 public:
  std::shared_ptr<PinnedRings> find_or_make(cl_context context, cl_device_id device, std::size_t slot_size) {
    const std::lock_guard lock{mutex_};
    std::erase_if(rings_, [](const auto& entry) { return entry.second.expired(); });
    auto& known = rings_[{context, device}];
    auto rings = known.lock();
    if (!rings) known = rings = std::make_shared<PinnedRings>(context, slot_size);
    return rings;
  }

 private:
  std::mutex mutex_;  // guards rings_
  std::map<std::pair<cl_context, cl_device_id>, std::weak_ptr<PinnedRings>> rings_;
};

// A copy as the program asked for it, but for its direction.
struct Copy {
  cl_command_queue queue;
  cl_mem memory;
  std::size_t offset;
  std::size_t size;
  std::span<const cl_event> waits;
  StagedEvents* events;
};

// One copy on its way through a ring, chunk by chunk. Whatever way it ends, nothing is under way when it is destroyed.
class StagedCopy {
 public:
  StagedCopy(const Copy& copy, PinnedRing& ring, std::size_t chunk_size)
      : copy_{copy}, vendor_{functions(copy.queue)}, ring_{ring}, chunk_size_{chunk_size} {}
  ~StagedCopy();
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;

  cl_int write(const std::byte* from);
  cl_int read(std::byte* to);

 private:
  using Slot = PinnedRing::Slot;

  std::size_t chunks() const { return (copy_.size + chunk_size_ - 1) / chunk_size_; }
  std::size_t start_of(std::size_t chunk) const { return chunk * chunk_size_; }
  std::size_t size_of(std::size_t chunk) const { return std::min(chunk_size_, copy_.size - start_of(chunk)); }

  void start(std::size_t chunk, void* to, const void* from, CopyThreads::Stores stores);
  void finish(Slot& slot);
  template <typename Function>
  cl_int transfer(std::size_t chunk, Function function);
  cl_int send(std::size_t chunk) { return transfer(chunk, vendor_.clEnqueueWriteBuffer); }
  cl_int fetch(std::size_t chunk) { return transfer(chunk, vendor_.clEnqueueReadBuffer); }
  cl_int wait(Slot& slot);
  cl_int hand_over_events();
  bool may_run_out_of_order() const;
  void release(cl_event& event);

  const Copy& copy_;
  const cl_icd_dispatch& vendor_;
  PinnedRing& ring_;
  const std::size_t chunk_size_;
  CopyThreads& threads_ = of_this_process<CopyThreads>();
  std::optional<CopyThreads::Busy> busy_;  // from the first chunk that there is to copy
  cl_event first_ = nullptr;               // if events are asked for
  cl_event last_ = nullptr;
};

StagedCopy::~StagedCopy() {
  for (Slot& slot : ring_.slots()) {
    finish(slot);
    wait(slot);  // what went wrong was said before
  }
  release(first_);
  release(last_);
}

// While the device fetches some chunks from their slots, the threads fill the next, also while one is being sent.
cl_int StagedCopy::write(const std::byte* from) {
  const std::size_t count = chunks();
  for (std::size_t chunk = 0; chunk < count; ++chunk) {
    Slot& slot = ring_.slot(chunk);
    if (const cl_int code = wait(slot); code != CL_SUCCESS) return code;
    start(chunk, slot.memory, from + start_of(chunk), CopyThreads::stores_of_writes(copy_.size));
    if (chunk == 0) continue;
    finish(ring_.slot(chunk - 1));
    if (const cl_int code = send(chunk - 1); code != CL_SUCCESS) return code;
  }
  finish(ring_.slot(count - 1));
  busy_.reset();
  if (const cl_int code = send(count - 1); code != CL_SUCCESS) return code;
  for (std::size_t turn = count; turn < count + PinnedRing::kSlots; ++turn) {  // the oldest first
    if (const cl_int code = wait(ring_.slot(turn)); code != CL_SUCCESS) return code;
  }
  return hand_over_events();
}

// The device fills the slots ahead of the threads, which empty them.
cl_int StagedCopy::read(std::byte* to) {
  const std::size_t count = chunks();
  for (std::size_t chunk = 0; chunk < std::min(count, PinnedRing::kSlots); ++chunk) {
    if (const cl_int code = fetch(chunk); code != CL_SUCCESS) return code;
  }
  for (std::size_t chunk = 0; chunk < count; ++chunk) {
    Slot& slot = ring_.slot(chunk);
    if (const cl_int code = wait(slot); code != CL_SUCCESS) return code;
    start(chunk, to + start_of(chunk), slot.memory, kStoresOfReads);
    if (chunk == 0) continue;
    finish(ring_.slot(chunk - 1));
    const std::size_t next = chunk - 1 + PinnedRing::kSlots;
    if (next >= count) continue;
    if (const cl_int code = fetch(next); code != CL_SUCCESS) return code;
  }
  finish(ring_.slot(count - 1));
  return hand_over_events();
}

void StagedCopy::start(std::size_t chunk, void* to, const void* from, CopyThreads::Stores stores) {
  if (!busy_) busy_.emplace(threads_);
  Slot& slot = ring_.slot(chunk);
  threads_.start(slot.part, to, from, size_of(chunk), stores);
  slot.copying = true;
}

void StagedCopy::finish(Slot& slot) {
  if (!slot.copying) return;
  threads_.finish(slot.part);
  slot.copying = false;
}

// Each chunk waits for what the program said, not only the first: a queue may run them in any order, and where one of
// those events fails, none may reach its destination.
template <typename Function>
cl_int StagedCopy::transfer(std::size_t chunk, Function function) {
  Slot& slot = ring_.slot(chunk);
  const cl_int code = function(copy_.queue, copy_.memory, CL_FALSE, copy_.offset + start_of(chunk), size_of(chunk),
                               slot.memory, static_cast<cl_uint>(copy_.waits.size()),
                               copy_.waits.empty() ? nullptr : copy_.waits.data(), &slot.transfer);
  if (code != CL_SUCCESS) {
    slot.transfer = nullptr;
    return code;
  }
  if (copy_.events && chunk == 0 && chunks() > 1) {
    vendor_.clRetainEvent(slot.transfer);
    first_ = slot.transfer;
  }
  if (copy_.events && chunk == chunks() - 1) {
    vendor_.clRetainEvent(slot.transfer);
    last_ = slot.transfer;
  }
  return vendor_.clFlush(copy_.queue);
}

cl_int StagedCopy::wait(Slot& slot) {
  if (!slot.transfer) return CL_SUCCESS;
  const cl_int code = vendor_.clWaitForEvents(1, &slot.transfer);
  release(slot.transfer);
  return code;
}

// All chunks are done by now.
cl_int StagedCopy::hand_over_events() {
  if (!copy_.events) return CL_SUCCESS;
  if (chunks() > 1 && may_run_out_of_order()) {  // the last that was sent need not be the last that was done
    cl_event marker = nullptr;
    cl_int code = vendor_.clEnqueueMarkerWithWaitList(copy_.queue, 1, &last_, &marker);
    if (code != CL_SUCCESS) return code;
    release(last_);
    last_ = marker;
    code = vendor_.clWaitForEvents(1, &last_);
    if (code != CL_SUCCESS) return code;
  }
  *copy_.events = {std::exchange(first_, nullptr), std::exchange(last_, nullptr)};
  return CL_SUCCESS;
}

bool StagedCopy::may_run_out_of_order() const {
  cl_command_queue_properties properties = 0;  // asked each time: clSetCommandQueueProperty may change them
  const cl_int code =
      vendor_.clGetCommandQueueInfo(copy_.queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, nullptr);
  return code != CL_SUCCESS || (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

void StagedCopy::release(cl_event& event) {
  if (event) vendor_.clReleaseEvent(event);
  event = nullptr;
}

class StagingThroughRings final : public Staging {
 public:
  StagingThroughRings(cl_command_queue queue, std::shared_ptr<PinnedRings> rings, std::size_t least_size)
      : queue_{queue}, rings_{std::move(rings)}, least_size_{least_size} {}

  bool wants(std::size_t size) const override { return size >= least_size_; }

  cl_int write(cl_mem memory, std::size_t offset, std::size_t size, const void* from, std::span<const cl_event> waits,
               StagedEvents* events) override {
    const Copy copy{queue_, memory, offset, size, waits, events};
    if (const auto ring = rings_->borrow()) {
      return StagedCopy{copy, *ring, chunk_size_for(size)}.write(static_cast<const std::byte*>(from));
    }
    return at_once(copy, functions(queue_).clEnqueueWriteBuffer, from);
  }

  cl_int read(cl_mem memory, std::size_t offset, std::size_t size, void* to, std::span<const cl_event> waits,
              StagedEvents* events) override {
    const Copy copy{queue_, memory, offset, size, waits, events};
    if (const auto ring = rings_->borrow()) {
      return StagedCopy{copy, *ring, chunk_size_for(size)}.read(static_cast<std::byte*>(to));
    }
    return at_once(copy, functions(queue_).clEnqueueReadBuffer, to);
  }

 private:
  std::size_t chunk_size_for(std::size_t size) const {
    const std::size_t most = rings_->slot_size();
    return std::clamp(size / kLeastChunks, std::min(kLeastChunk, most), most);
  }

  // The driver's own way, where no ring is free: those who have them may wait for this very copy's thread.
  template <typename Function, typename Pointer>
  static cl_int at_once(const Copy& copy, Function function, Pointer pointer) {
    cl_event event = nullptr;
    const cl_int code = function(copy.queue, copy.memory, CL_TRUE, copy.offset, copy.size, pointer,
                                 static_cast<cl_uint>(copy.waits.size()),
                                 copy.waits.empty() ? nullptr : copy.waits.data(), copy.events ? &event : nullptr);
    if (code == CL_SUCCESS && copy.events) *copy.events = {nullptr, event};
    return code;
  }

  const cl_command_queue queue_;
  const std::shared_ptr<PinnedRings> rings_;
  const std::size_t least_size_;
};

}  // namespace

void PinnedRanges::add(const void* start, std::size_t size) {
  const std::lock_guard lock{mutex_};
  ranges_.emplace(reinterpret_cast<std::uintptr_t>(start), size);
  longest_ = std::max(longest_, size);
}

// Of several that start there, the longest: to take pinned memory for ordinary costs less than the other way around.
void PinnedRanges::remove(const void* start) {
  const std::lock_guard lock{mutex_};
  const auto [begin, end] = ranges_.equal_range(reinterpret_cast<std::uintptr_t>(start));
  const auto longest = std::max_element(begin, end, [](auto& a, auto& b) { return a.second < b.second; });
  if (longest != end) ranges_.erase(longest);
}

bool PinnedRanges::contains(const void* start, std::size_t size) const {
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  const std::lock_guard lock{mutex_};
  if (size > longest_) return false;
  for (auto range = ranges_.upper_bound(address); range != ranges_.begin();) {
    --range;
    const std::size_t before = address - range->first;
    if (before > longest_ - size) return false;  // none that starts earlier reaches this far
    if (size <= range->second && before <= range->second - size) return true;
  }
  return false;
}

std::unique_ptr<Staging> Staging::for_queue(cl_context context, cl_device_id device, cl_command_queue queue) {
  const Mode mode = mode_from_environment();
  if (mode == Mode::off) return nullptr;
  if (mode == Mode::where_it_gains) {
    if (!has_its_own_memory(device) || of_this_process<CopyThreads>().cores() < CopyThreads::kLeastCores)
      return nullptr;
  }
  const std::size_t slot_size = mode == Mode::always ? kSlotSizeIfAlways : kSlotSize;
  const std::size_t least_size = mode == Mode::always ? 1 : kLeastSize;
  auto rings = of_this_process<RingsByDevice>().find_or_make(context, device, slot_size);
  return std::make_unique<StagingThroughRings>(queue, std::move(rings), least_size);
}

}  // namespace grus
