// Entry points: events. User events never cross the seam: what waits for one is held back above it.
#include <algorithm>

#include "api/answer.hpp"
#include "api/call.hpp"
#include "api/check.hpp"

namespace grus::api {
namespace {

Result<cl_int> status_of(const Event& event) {
  if (event.place() == Event::Place::below) return executor_of(*event.context).event_status(event.id());
  return event.status_above();
}

}  // namespace

Result<cl_event> clCreateUserEvent(cl_context handle) {
  Context* context = live<Context>(handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  return reinterpret_cast<cl_event>(slab<Event>().create(*context, nullptr, CL_COMMAND_USER));
}

cl_int clSetUserEventStatus(cl_event handle, cl_int status) {
  Event* event = live<Event>(handle);
  if (!event || !event->is_user()) return CL_INVALID_EVENT;
  if (status > CL_COMPLETE) return CL_INVALID_VALUE;
  return HoldBack::instance().finish(*event, status) ? CL_SUCCESS : CL_INVALID_OPERATION;
}

cl_int clRetainEvent(cl_event handle) { return retain<Event>(handle, CL_INVALID_EVENT); }
cl_int clReleaseEvent(cl_event handle) { return release_handle<Event>(handle, CL_INVALID_EVENT); }

cl_int clWaitForEvents(cl_uint count, const cl_event* handles) {
  if (count == 0 || !handles) return CL_INVALID_VALUE;
  std::vector<Event*> events;
  for (cl_uint next = 0; next < count; ++next) {
    Event* event = live<Event>(handles[next]);
    if (!event) return CL_INVALID_EVENT;
    if (!events.empty() && event->context.get() != events[0]->context.get()) return CL_INVALID_CONTEXT;
    events.push_back(event);
  }
  return wait_for(events);
}

cl_int clGetEventInfo(cl_event handle, cl_event_info query, std::size_t size, void* value, std::size_t* size_ret) {
  Event* event = live<Event>(handle);
  if (!event) return CL_INVALID_EVENT;
  const Room room{size, value, size_ret};
  switch (query) {
    case CL_EVENT_COMMAND_QUEUE:
      return answer(room, reinterpret_cast<cl_command_queue>(event->queue.get()));
    case CL_EVENT_CONTEXT:
      return answer(room, reinterpret_cast<cl_context>(event->context.get()));
    case CL_EVENT_COMMAND_TYPE:
      return answer(room, event->type);
    case CL_EVENT_COMMAND_EXECUTION_STATUS: {
      const auto status = status_of(*event);
      return status ? answer(room, *status) : status.error();
    }
    case CL_EVENT_REFERENCE_COUNT:
      return answer(room, cl_uint{event->program_references()});
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clSetEventCallback(cl_event handle, cl_int status, void(CL_CALLBACK* notify)(cl_event, cl_int, void*),
                          void* user_data) {
  Event* event = live<Event>(handle);
  if (!event) return CL_INVALID_EVENT;
  if (!notify || (status != CL_SUBMITTED && status != CL_RUNNING && status != CL_COMPLETE)) return CL_INVALID_VALUE;
  // The event lives until its callback has run, whatever the program releases.
  return HoldBack::instance().add_callback(
      *event, status, [=, alive = Ref{event}](cl_int reached) { notify(handle, reached, user_data); });
}

cl_int clGetEventProfilingInfo(cl_event handle, cl_profiling_info query, std::size_t size, void* value,
                               std::size_t* size_ret) {
  Event* event = live<Event>(handle);
  if (!event) return CL_INVALID_EVENT;
  if (event->is_user() || !event->queue || !event->queue->profiles()) return CL_PROFILING_INFO_NOT_AVAILABLE;
  if (query < CL_PROFILING_COMMAND_QUEUED || query > CL_PROFILING_COMMAND_COMPLETE) return CL_INVALID_VALUE;
  const Room room{size, value, size_ret};
  if (event->profile) return answer(room, (*event->profile)[query - CL_PROFILING_COMMAND_QUEUED]);
  if (event->place() != Event::Place::below) return CL_PROFILING_INFO_NOT_AVAILABLE;
  const auto time = executor_of(*event->context).event_profile(event->id(), query);
  if (!time) return time.error();
  return answer(room, *time + event->context->clock_offset);
}

}  // namespace grus::api
