#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <vector>

#include "objects/device.hpp"

namespace grus {

class Context : public Object {
 public:
  using Notice = std::function<void(const char* text, const void* data, std::size_t size)>;

  explicit Context(BelowSeam& below_) : below{&below_} {}
  ~Context() {
    if (created) below.load(std::memory_order_relaxed)->free(ObjectType::context, id());
    std::for_each(destructor_callbacks.rbegin(), destructor_callbacks.rend(), [](const auto& callback) { callback(); });
  }

  bool has(const Device& device) const {
    for (const auto& own : devices) {
      if (own.get() == &device) return true;
    }
    return false;
  }
  // True if every device works on the host's own memory, so that buffers can live in memory that Grus owns.
  bool shares_host_memory() const {
    for (const auto& device : devices) {
      if (!device->limits.shares_host_memory) return false;
    }
    return true;
  }

  static std::uint64_t formats_key(cl_mem_flags flags, cl_mem_object_type type) {
    return std::uint64_t{flags} << 32 | type;
  }

  std::atomic<BelowSeam*> below;  // changed by moves, with the gate closed
  bool created = false;           // below the seam
  std::vector<Ref<Device>> devices;
  std::vector<cl_context_properties> properties;        // as given, with the closing zero; empty if null was given
  std::vector<cl_context_properties> properties_below;  // those that the vendor is told
  Notice notice;                                        // of the program's, for errors
  FactCache image_formats;                              // by flags and type: see formats_key
  // Added to the times that events tell, so that they go on through moves; and what time it was at the last one.
  cl_ulong clock_offset = 0;
  cl_ulong clock_then = 0;
  std::chrono::steady_clock::time_point clock_read;
  std::mutex callbacks_mutex;  // guards destructor_callbacks
  std::vector<std::function<void()>> destructor_callbacks;
};

}  // namespace grus
