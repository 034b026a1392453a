// Contexts and queues.
#include "answer.hpp"
#include "worker.hpp"

_cl_context::_cl_context() { fake::worker().add_context(); }
_cl_context::~_cl_context() { fake::worker().remove_context(); }

namespace fake {

cl_context clCreateContext(const cl_context_properties*, cl_uint count, const cl_device_id* devices,
                           void(CL_CALLBACK*)(const char*, const void*, size_t, void*), void*, cl_int* code) {
  const bool valid = count == 1 && devices;
  if (code) *code = valid ? CL_SUCCESS : CL_INVALID_VALUE;
  return valid ? new _cl_context : nullptr;
}

cl_int clRetainContext(cl_context context) { return retain(context, CL_INVALID_CONTEXT); }
cl_int clReleaseContext(cl_context context) { return release(context, CL_INVALID_CONTEXT); }

cl_int clGetContextInfo(cl_context context, cl_context_info query, size_t size, void* value, size_t* size_out) {
  if (!context) return CL_INVALID_CONTEXT;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_CONTEXT_REFERENCE_COUNT:
      return answer(room, context->references.load());
    case CL_CONTEXT_NUM_DEVICES:
      return answer(room, cl_uint{1});
    default:
      return CL_INVALID_VALUE;
  }
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id, cl_command_queue_properties properties,
                                      cl_int* code) {
  if (code) *code = context ? CL_SUCCESS : CL_INVALID_CONTEXT;
  if (!context) return nullptr;
  auto* queue = new _cl_command_queue;
  queue->context = Ref{context};
  queue->properties = properties;
  return queue;
}

cl_int clRetainCommandQueue(cl_command_queue queue) { return retain(queue, CL_INVALID_COMMAND_QUEUE); }

cl_int clReleaseCommandQueue(cl_command_queue queue) {
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  worker().finish_unless_held(*queue);
  worker().drop_finished();
  return release(queue, CL_INVALID_COMMAND_QUEUE);
}

cl_int clGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info query, size_t size, void* value,
                             size_t* size_out) {
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_QUEUE_CONTEXT:
      return answer(room, cl_context{queue->context.get()});
    case CL_QUEUE_REFERENCE_COUNT:
      return answer(room, queue->references.load());
    case CL_QUEUE_PROPERTIES:
      return answer(room, queue->properties);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clFlush(cl_command_queue queue) { return queue ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE; }

cl_int clFinish(cl_command_queue queue) {
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  worker().finish(*queue);
  return CL_SUCCESS;
}

}  // namespace fake
