// How LocalExecutor hands a command to the vendor: waits and event translated, everything else the caller's.
#pragma once

#include <array>

#include "executor/local.hpp"

namespace grus {

// A command that waits for others or has an event.
template <typename Call>
[[gnu::noinline]] cl_int LocalExecutor::place_in_full(const Placement& placement, cl_command_queue queue, Call call) {
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
  const cl_int code = call(queue, count, static_cast<const cl_event*>(count == 0 ? nullptr : waits),
                           placement.event ? &event : nullptr);
  if (code == CL_SUCCESS && placement.event) events_.set(placement.event, {event, nullptr});
  return code;
}

template <typename Call>
cl_int LocalExecutor::place(const Placement& placement, const Work& work, Call call) {
  return turns_.empty() ? place(placement, call) : place_in_turn(placement, work, call);
}

template <typename Call>
[[gnu::noinline]] cl_int LocalExecutor::place_in_turn(const Placement& placement, const Work& work, Call call) {
  const VendorQueue& to = *queues_[placement.queue];
  const auto since = to.turn && placement.blocking == Blocking::yes ? Turn::Clock::now() : Turn::Clock::time_point{};
  cl_int code = CL_SUCCESS;
  std::uint64_t sent = 0;
  {
    const Turn::Pass pass{to.turn, to.handle, work, to.in_order ? placement.event.value() : 0};
    if (since != Turn::Clock::time_point{}) sent = to.turn->sent();
    code = place(placement, call);
  }
  if (sent != 0 && to.in_order) to.turn->saw_end_of(to.handle, since, sent);
  return code;
}

template <typename Call>
cl_int LocalExecutor::place(const Placement& placement, Call call) {
  VendorQueue& to = *queues_[placement.queue];
  const cl_int code =
      !placement.waits.empty() || placement.event
          ? place_in_full(placement, to.handle, call)
          : call(to.handle, cl_uint{0}, static_cast<const cl_event*>(nullptr), static_cast<cl_event*>(nullptr));
  to.busy.store(true, std::memory_order_relaxed);  // after the call: clFinish on another thread may not have seen it
  return code;
}

}  // namespace grus
