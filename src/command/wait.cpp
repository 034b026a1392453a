#include <algorithm>

#include "command/enqueue.hpp"

namespace grus {

cl_int wait_for(std::span<Event* const> events) {
  Executor& executor = executor_of(*events.front()->context);
  std::vector<Ref<Event>> alive;
  alive.reserve(events.size());
  for (Event* event : events) alive.emplace_back(event);
  cl_int code = CL_SUCCESS;
  {
    const Gate::Leave leave{Gate::Place::waiting};
    const auto above = [](const Event* event) { return event->place() == Event::Place::above; };
    if (std::any_of(events.begin(), events.end(), above)) HoldBack::instance().wait_until_not_above(events);
    std::vector<ObjectId> below;
    below.reserve(events.size());
    for (const Event* event : events) {
      if (event->place() == Event::Place::below) below.push_back(event->id());
    }
    if (!below.empty()) code = executor.wait(below);
  }
  const auto failed = [](const Event* event) {
    return event->place() == Event::Place::finished && event->status_above() < 0;
  };
  if (std::any_of(events.begin(), events.end(), failed)) return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
  return code;
}

}  // namespace grus
