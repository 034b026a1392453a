// The checks that many entry points share, with the specification's error codes.
#pragma once

#include <array>
#include <vector>

#include "command/enqueue.hpp"

namespace grus::api {

// The object behind a handle of the program's; null if there is none.
template <typename T>
T* live(const void* handle) {
  return slab<T>().live(handle);
}

template <typename T>
cl_int retain(const void* handle, cl_int invalid) {
  T* object = live<T>(handle);
  if (!object) return invalid;
  object->program_retain();
  return CL_SUCCESS;
}

template <typename T>
cl_int release_handle(const void* handle, cl_int invalid) {
  T* object = live<T>(handle);
  return object && program_release(object) ? CL_SUCCESS : invalid;
}

// A wait list, checked. Most are short, so they live on the stack.
class WaitList {
 public:
  // The list of an enqueue call: all events of the queue's context.
  cl_int check(const Context& context, cl_uint count, const cl_event* handles);
  Waits events() const { return {many_.empty() ? few_.data() : many_.data(), count_}; }

 private:
  std::size_t count_ = 0;
  std::array<Event*, 8> few_;
  std::vector<Event*> many_;
};

inline cl_int WaitList::check(const Context& context, cl_uint count, const cl_event* handles) {
  if (count == 0 && !handles) [[likely]]
    return CL_SUCCESS;
  if (count == 0 || !handles) return CL_INVALID_EVENT_WAIT_LIST;
  for (cl_uint next = 0; next < count; ++next) {
    Event* event = live<Event>(handles[next]);
    if (!event) return CL_INVALID_EVENT_WAIT_LIST;
    if (event->context.get() != &context) return CL_INVALID_CONTEXT;
    if (next < few_.size()) [[likely]] {
      few_[next] = event;
      continue;
    }
    // Grows with what was found to be an event: the count alone may be nonsense.
    if (many_.empty()) many_.assign(few_.begin(), few_.end());
    many_.push_back(event);
  }
  count_ = count;
  return CL_SUCCESS;
}

inline bool overflows(std::size_t offset, std::size_t size, std::size_t limit) {
  return offset > limit || size > limit - offset;
}

// Markers and barriers wait for everything before them only if their wait list is empty.
inline Order marker_order(Waits waits) { return waits.empty() ? Order::all_before : Order::plain; }
inline Order barrier_order(Waits waits) { return waits.empty() ? Order::all_before_and_barrier : Order::barrier; }

inline Blocking blocking_of(cl_bool flag) { return flag ? Blocking::yes : Blocking::no; }

}  // namespace grus::api
