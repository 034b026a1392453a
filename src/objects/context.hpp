#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <vector>

#include "objects/device.hpp"

namespace grus {

class Context : public Object {
 public:
  explicit Context(BelowSeam& below_) : below{&below_} {}
  ~Context() {
    if (created) below->free(ObjectType::context, id());
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

  BelowSeam* below;
  bool created = false;  // below the seam
  std::vector<Ref<Device>> devices;
  std::vector<cl_context_properties> properties;  // as given, with the closing zero; empty if null was given
  FactCache image_formats;                        // by flags and type
  std::mutex callbacks_mutex;                     // guards destructor_callbacks
  std::vector<std::function<void()>> destructor_callbacks;
};

}  // namespace grus
