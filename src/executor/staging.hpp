// Copies between ordinary host memory and a device with memory of its own, through pinned buffers filled and emptied by
// a few threads: several times faster than the drivers' own way for large copies.
#pragma once

#include <CL/cl_icd.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

namespace grus {

// Host memory that is registered with a driver: copies from and to it are fast as they are. Ranges may overlap; memory
// that only several of them together cover does not count as registered.
class PinnedRanges {
 public:
  void add(const void* start, std::size_t size);
  void remove(const void* start);
  bool contains(const void* start, std::size_t size) const;

 private:
  mutable std::mutex mutex_;  // guards what follows
  std::multimap<std::uintptr_t, std::size_t> ranges_;
  std::size_t longest_ = 0;  // of all that were ever added
};

// The vendor's events of a copy that was sent in parts; both are to be released by whoever asked for them. `last`
// completes after all the others. A copy that was sent in one part has no `first`; one that failed has neither.
struct StagedEvents {
  cl_event first = nullptr;
  cl_event last = nullptr;
};

class Staging {
 public:
  // Null where staging gains nothing: the device shares the host's memory, or there are too few cores. GRUS_STAGING=off
  // turns it off, =always turns it on for every device and size, for tests. It must go before the queue does.
  static std::unique_ptr<Staging> for_queue(cl_context context, cl_device_id device, cl_command_queue queue);
  virtual ~Staging() = default;

  // Whether a blocking copy of this size should come here.
  virtual bool wants(std::size_t size) const = 0;
  // Blocking, and only for sizes that it wants. Events are made if asked for. Commands that other threads put into the
  // same queue meanwhile may run between the parts of a copy.
  virtual cl_int write(cl_mem memory, std::size_t offset, std::size_t size, const void* from,
                       std::span<const cl_event> waits, StagedEvents* events) = 0;
  virtual cl_int read(cl_mem memory, std::size_t offset, std::size_t size, void* to, std::span<const cl_event> waits,
                      StagedEvents* events) = 0;
};

}  // namespace grus
