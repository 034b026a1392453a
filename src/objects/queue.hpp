#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "objects/context.hpp"

namespace grus {

// A command kept above the seam; src/command/hold_back.cpp says how and why.
class HeldCommand {
 public:
  virtual ~HeldCommand() = default;
};

class Queue : public Object {
 public:
  Queue(Context& context_, Device& device_) : context{&context_}, device{&device_} {}
  ~Queue() {
    if (created) context->below.load(std::memory_order_relaxed)->free(ObjectType::queue, id());
  }

  bool in_order() const { return !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE); }
  bool profiles() const { return properties & CL_QUEUE_PROFILING_ENABLE; }

  const Ref<Context> context;
  const Ref<Device> device;
  bool created = false;  // below the seam
  cl_command_queue_properties properties = 0;
  std::vector<cl_queue_properties> property_list;  // as given to clCreateCommandQueueWithProperties, else empty

  // Commands above the seam, in the order they were enqueued; guarded by the hold-back's mutex. The count may be read
  // without it.
  std::deque<std::unique_ptr<HeldCommand>> held;
  std::atomic<std::uint32_t> held_count{0};
};

}  // namespace grus
