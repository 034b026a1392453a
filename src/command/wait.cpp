#include <algorithm>

#include "command/enqueue.hpp"

namespace grus {

cl_int wait_for(std::span<Event* const> events) {
  std::vector<Ref<Event>> alive;
  alive.reserve(events.size());
  for (Event* event : events) alive.emplace_back(event);
  const auto above = [](const Event* event) { return event->place() == Event::Place::above; };
  if (std::any_of(events.begin(), events.end(), above)) {
    const Gate::Leave leave{Gate::Place::waiting};
    HoldBack::instance().wait_until_not_above(events);
  }
  std::vector<ObjectId> below;
  below.reserve(events.size());
  for (const Event* event : events) {
    if (event->place() == Event::Place::below) below.push_back(event->id());
  }
  cl_int code = CL_SUCCESS;
  if (!below.empty()) {
    const Pin pin{executor_of(*events.front()->context)};
    const Gate::Leave leave{Gate::Place::waiting};
    code = pin->wait(below);
  }
  const auto failed = [](const Event* event) {
    return event->place() == Event::Place::finished && event->status_above() < 0;
  };
  if (std::any_of(events.begin(), events.end(), failed)) return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
  return code;
}

}  // namespace grus
