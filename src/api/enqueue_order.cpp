// Entry points: markers, barriers, migration, native kernels and the deprecated forms.
#include "api/call.hpp"
#include "api/check_memory.hpp"

namespace grus::api {

cl_int clEnqueueMarkerWithWaitList(cl_command_queue handle, cl_uint wait_count, const cl_event* wait_handles,
                                   cl_event* event_out) {
  Queue* queue = live<Queue>(handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  return enqueue(
      command::Marker{},
      {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_MARKER, Blocking::no, marker_order(wait_count)});
}

cl_int clEnqueueBarrierWithWaitList(cl_command_queue handle, cl_uint wait_count, const cl_event* wait_handles,
                                    cl_event* event_out) {
  Queue* queue = live<Queue>(handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  return enqueue(
      command::Barrier{},
      {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_BARRIER, Blocking::no, barrier_order(wait_count)});
}

cl_int clEnqueueMarker(cl_command_queue handle, cl_event* event_out) {
  if (!live<Queue>(handle)) return CL_INVALID_COMMAND_QUEUE;
  return event_out ? api::clEnqueueMarkerWithWaitList(handle, 0, nullptr, event_out) : CL_INVALID_VALUE;
}

cl_int clEnqueueBarrier(cl_command_queue handle) {
  return api::clEnqueueBarrierWithWaitList(handle, 0, nullptr, nullptr);
}

cl_int clEnqueueWaitForEvents(cl_command_queue handle, cl_uint count, const cl_event* events) {
  Queue* queue = live<Queue>(handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  if (count == 0 || !events) return CL_INVALID_VALUE;
  for (cl_uint next = 0; next < count; ++next) {
    if (!live<Event>(events[next])) return CL_INVALID_EVENT;
  }
  return api::clEnqueueBarrierWithWaitList(handle, count, events, nullptr);
}

cl_int clEnqueueMigrateMemObjects(cl_command_queue handle, cl_uint count, const cl_mem* memories,
                                  cl_mem_migration_flags flags, cl_uint wait_count, const cl_event* wait_handles,
                                  cl_event* event_out) {
  Queue* queue = live<Queue>(handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  if (count == 0 || !memories || (flags & ~(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED)))
    return CL_INVALID_VALUE;
  std::vector<ObjectId> ids;
  for (cl_uint next = 0; next < count; ++next) {
    const Memory* memory = live<Memory>(memories[next]);
    if (!memory) return CL_INVALID_MEM_OBJECT;
    if (memory->context.get() != queue->context.get()) return CL_INVALID_CONTEXT;
    ids.push_back(memory->id());
  }
  return enqueue(command::Migrate{ids, flags},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_MIGRATE_MEM_OBJECTS});
}

cl_int clEnqueueNativeKernel(cl_command_queue handle, void(CL_CALLBACK* function)(void*), void* arguments,
                             std::size_t size, cl_uint count, const cl_mem* memories, const void** places,
                             cl_uint wait_count, const cl_event* wait_handles, cl_event* event_out) {
  Queue* queue = live<Queue>(handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  if (!function || (arguments ? size == 0 : size != 0 || count != 0)) return CL_INVALID_VALUE;
  if (count != 0 ? !memories || !places : memories || places) return CL_INVALID_VALUE;
  if (!(queue->device->limits.execution & CL_EXEC_NATIVE_KERNEL)) return CL_INVALID_OPERATION;
  const auto* bytes = static_cast<const std::byte*>(arguments);
  std::vector<ObjectId> ids;
  std::vector<std::size_t> offsets;
  for (cl_uint next = 0; next < count; ++next) {
    const Memory* memory = live<Memory>(memories[next]);
    if (!memory || memory->type != CL_MEM_OBJECT_BUFFER) return CL_INVALID_MEM_OBJECT;
    if (memory->context.get() != queue->context.get()) return CL_INVALID_CONTEXT;
    const auto* place = static_cast<const std::byte*>(places[next]);
    if (place < bytes || overflows(static_cast<std::size_t>(place - bytes), sizeof(void*), size))
      return CL_INVALID_VALUE;
    ids.push_back(memory->id());
    offsets.push_back(static_cast<std::size_t>(place - bytes));
  }
  for (Device* device = queue->device.get(); device; device = device->parent.get())
    device->runs_native_kernels.store(true, std::memory_order_relaxed);
  return enqueue(command::NativeKernel{function, {bytes, size}, ids, offsets},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_NATIVE_KERNEL});
}

}  // namespace grus::api
