// The events that an enqueue call names: as the program gives them, and checked.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "objects/event.hpp"

namespace grus {

// The events that a command waits for, as objects.
using Waits = std::span<Event* const>;

struct WaitHandles {
  cl_uint count = 0;
  const cl_event* events = nullptr;

  bool none() const { return count == 0 && !events; }
};

// Most are short, so they live on the stack.
class WaitList {
 public:
  // The list of an enqueue call: all events of the queue's context.
  cl_int check(const Context& context, WaitHandles handles) {
    if (handles.none()) return CL_SUCCESS;
    if (handles.count == 0 || !handles.events) return CL_INVALID_EVENT_WAIT_LIST;
    for (cl_uint next = 0; next < handles.count; ++next) {
      Event* event = slab<Event>().live(handles.events[next]);
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
    count_ = handles.count;
    return CL_SUCCESS;
  }
  Waits events() const { return {many_.empty() ? few_.data() : many_.data(), count_}; }

 private:
  std::size_t count_ = 0;
  std::array<Event*, 8> few_;
  std::vector<Event*> many_;
};

}  // namespace grus
