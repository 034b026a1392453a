// Events.
#include "answer.hpp"
#include "worker.hpp"

namespace fake {

cl_int clWaitForEvents(cl_uint count, const cl_event* events) {
  if (count == 0 || !events) return CL_INVALID_VALUE;
  for (cl_uint next = 0; next < count; ++next) worker().wait_for(*events[next]);
  return CL_SUCCESS;
}

cl_int clGetEventInfo(cl_event event, cl_event_info query, size_t size, void* value, size_t* size_out) {
  if (!event) return CL_INVALID_EVENT;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_EVENT_COMMAND_QUEUE:
      return answer(room, cl_command_queue{event->queue.get()});
    case CL_EVENT_CONTEXT:
      return answer(room, cl_context{event->context.get()});
    case CL_EVENT_COMMAND_TYPE:
      return answer(room, event->type);
    case CL_EVENT_COMMAND_EXECUTION_STATUS:
      return answer(room, worker().status_of(*event));
    case CL_EVENT_REFERENCE_COUNT:
      return answer(room, event->references.load());
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clRetainEvent(cl_event event) { return retain(event, CL_INVALID_EVENT); }
cl_int clReleaseEvent(cl_event event) { return release(event, CL_INVALID_EVENT); }

cl_int clSetEventCallback(cl_event event, cl_int status, void(CL_CALLBACK* call)(cl_event, cl_int, void*), void* data) {
  if (!event) return CL_INVALID_EVENT;
  worker().add_callback(*event, {status, [=](cl_event reached, cl_int with) { call(reached, with, data); }});
  return CL_SUCCESS;
}

cl_int clGetEventProfilingInfo(cl_event event, cl_profiling_info query, size_t size, void* value, size_t* size_out) {
  if (!event) return CL_INVALID_EVENT;
  if (!(event->queue->properties & CL_QUEUE_PROFILING_ENABLE) || worker().status_of(*event) != CL_COMPLETE) {
    return CL_PROFILING_INFO_NOT_AVAILABLE;
  }
  if (query < CL_PROFILING_COMMAND_QUEUED || query > CL_PROFILING_COMMAND_END) return CL_INVALID_VALUE;
  return answer(Room{size, value, size_out}, worker().time_of(*event, query - CL_PROFILING_COMMAND_QUEUED));
}

}  // namespace fake
