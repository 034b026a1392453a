// Entry points: command queues.
#include <atomic>

#include "api/answer.hpp"
#include "api/call.hpp"
#include "api/check.hpp"
#include "api/session.hpp"

namespace grus::api {
namespace {

constexpr cl_command_queue_properties kHostProperties =
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
constexpr cl_command_queue_properties kAllProperties =
    kHostProperties | CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT;

Result<cl_command_queue> create(Context& context, Device& device, cl_command_queue_properties properties,
                                std::span<const cl_queue_properties> list, std::vector<cl_queue_properties> as_given) {
  auto queue = Ref<Queue>::adopt(slab<Queue>().create(context, device));
  queue->properties = properties;
  queue->property_list = std::move(as_given);
  const cl_int code = executor_of(context).create_queue(queue->id(), context.id(), device.id(), list);
  if (code != CL_SUCCESS) return Failure{code};
  queue->created = true;
  static std::atomic<bool> is_first{true};
  if (is_first.exchange(false, std::memory_order_relaxed) && g_on_first_queue) g_on_first_queue();
  return reinterpret_cast<cl_command_queue>(queue.hand_out());
}

cl_int check_properties(const Device& device, cl_command_queue_properties properties) {
  if (properties & ~kAllProperties) return CL_INVALID_VALUE;
  // Queues on the device are not offered: what they hold can't be seen, so it can't be moved.
  if (properties & ~kHostProperties) return CL_INVALID_QUEUE_PROPERTIES;
  if (properties & ~device.limits.queue_properties) return CL_INVALID_QUEUE_PROPERTIES;
  return CL_SUCCESS;
}

}  // namespace

Result<cl_command_queue> clCreateCommandQueue(cl_context context_handle, cl_device_id device_handle,
                                              cl_command_queue_properties properties) {
  Context* context = live<Context>(context_handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  Device* device = live<Device>(device_handle);
  if (!device || !context->has(*device)) return Failure{CL_INVALID_DEVICE};
  if (properties & ~kHostProperties) return Failure{CL_INVALID_VALUE};
  if (const cl_int code = check_properties(*device, properties); code != CL_SUCCESS) return Failure{code};
  const cl_queue_properties list[] = {CL_QUEUE_PROPERTIES, properties};
  return create(*context, *device, properties, list, {});
}

Result<cl_command_queue> clCreateCommandQueueWithProperties(cl_context context_handle, cl_device_id device_handle,
                                                            const cl_queue_properties* list) {
  Context* context = live<Context>(context_handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  Device* device = live<Device>(device_handle);
  if (!device || !context->has(*device)) return Failure{CL_INVALID_DEVICE};
  cl_command_queue_properties properties = 0;
  bool sized = false;
  const cl_queue_properties* end = list;
  for (; end && *end != 0; end += 2) {
    switch (*end) {
      case CL_QUEUE_PROPERTIES:
        properties = end[1];
        break;
      case CL_QUEUE_SIZE:
        sized = true;
        break;
      case CL_QUEUE_PRIORITY_KHR:
      case CL_QUEUE_THROTTLE_KHR:
        break;
      default:
        return Failure{CL_INVALID_VALUE};
    }
  }
  if (const cl_int code = check_properties(*device, properties); code != CL_SUCCESS) return Failure{code};
  if (sized) return Failure{CL_INVALID_VALUE};  // only queues on the device have a size
  std::vector<cl_queue_properties> as_given;
  if (list) as_given.assign(list, end + 1);
  return create(*context, *device, properties, {list, static_cast<std::size_t>(end - list)}, std::move(as_given));
}

cl_int clRetainCommandQueue(cl_command_queue handle) { return retain<Queue>(handle, CL_INVALID_COMMAND_QUEUE); }

cl_int clReleaseCommandQueue(cl_command_queue handle) {
  Queue* queue = live<Queue>(handle);
  if (!queue || queue->program_references() == 0) return CL_INVALID_COMMAND_QUEUE;
  executor_of(*queue).flush(queue->id());  // as the specification says: every release flushes
  return program_release(queue) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

cl_int clGetCommandQueueInfo(cl_command_queue handle, cl_command_queue_info query, std::size_t size, void* value,
                             std::size_t* size_ret) {
  Queue* queue = live<Queue>(handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  const Room room{size, value, size_ret};
  switch (query) {
    case CL_QUEUE_CONTEXT:
      return answer(room, reinterpret_cast<cl_context>(queue->context.get()));
    case CL_QUEUE_DEVICE:
      return answer(room, reinterpret_cast<cl_device_id>(queue->device.get()));
    case CL_QUEUE_REFERENCE_COUNT:
      return answer(room, cl_uint{queue->program_references()});
    case CL_QUEUE_PROPERTIES:
      return answer(room, queue->properties);
    case CL_QUEUE_PROPERTIES_ARRAY:
      return answer(room, queue->property_list);
    case CL_QUEUE_SIZE:
      return CL_INVALID_COMMAND_QUEUE;  // only queues on the device have one
    case CL_QUEUE_DEVICE_DEFAULT:
      return answer(room, static_cast<cl_command_queue>(nullptr));
    default:
      return CL_INVALID_VALUE;
  }
}

// Deprecated since OpenCL 1.1, and the vendor's to refuse.
cl_int clSetCommandQueueProperty(cl_command_queue handle, cl_command_queue_properties properties, cl_bool enable,
                                 cl_command_queue_properties* before) {
  Queue* queue = live<Queue>(handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  if (properties & ~kHostProperties) return CL_INVALID_VALUE;
  if (properties & ~queue->device->limits.queue_properties) return CL_INVALID_QUEUE_PROPERTIES;
  cl_command_queue_properties old = 0;
  const cl_int code = executor_of(*queue).set_queue_property(queue->id(), properties, enable, &old);
  if (code != CL_SUCCESS) return code;
  if (before) *before = queue->properties;
  queue->properties = enable ? queue->properties | properties : queue->properties & ~properties;
  return CL_SUCCESS;
}

cl_int clFlush(cl_command_queue handle) {
  Queue* queue = live<Queue>(handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  return executor_of(*queue).flush(queue->id());
}

cl_int clFinish(cl_command_queue handle) {
  Queue* queue = live<Queue>(handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  const Ref<Queue> alive{queue};
  if (queue->held_count.load(std::memory_order_acquire) != 0) {
    const Gate::Leave leave{Gate::Place::waiting};
    HoldBack::instance().wait_until_sent(*queue);
  }
  const Pin pin{executor_of(*queue)};
  const Gate::Leave leave{Gate::Place::waiting};
  return pin->finish(queue->id());
}

}  // namespace grus::api
