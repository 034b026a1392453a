// How LocalExecutor hands a command to the vendor: waits and event translated, everything else the caller's.
#pragma once

#include <array>

#include "executor/local.hpp"

namespace grus {

template <typename Call>
cl_int LocalExecutor::place(const Placement& placement, Call call) {
  VendorQueue& to = *queues_[placement.queue];
  cl_command_queue queue = to.handle;
  to.busy.store(true, std::memory_order_relaxed);
  if (placement.waits.empty()) [[likely]] {
    if (!placement.event)
      return call(queue, cl_uint{0}, static_cast<const cl_event*>(nullptr), static_cast<cl_event*>(nullptr));
    cl_event event = nullptr;
    const cl_int code = call(queue, cl_uint{0}, static_cast<const cl_event*>(nullptr), &event);
    if (code == CL_SUCCESS) events_.set(placement.event, {event, nullptr});
    return code;
  }
  std::array<cl_event, 16> few;
  std::vector<cl_event> many;
  cl_event* waits = few.data();
  if (placement.waits.size() > few.size()) {
    many.resize(placement.waits.size());
    waits = many.data();
  }
  cl_uint count = 0;
  for (const ObjectId wait : placement.waits) waits[count++] = events_[wait].last;
  cl_event event = nullptr;
  const cl_int code = call(queue, count, static_cast<const cl_event*>(waits), placement.event ? &event : nullptr);
  if (code == CL_SUCCESS && placement.event) events_.set(placement.event, {event, nullptr});
  return code;
}

}  // namespace grus
