// Entry points: devices.
#include <algorithm>
#include <ctime>

#include "api/answer.hpp"
#include "api/call.hpp"
#include "api/check.hpp"
#include "api/platforms.hpp"
#include "objects/features.hpp"

namespace grus::api {

cl_int clGetDeviceIDs(cl_platform_id handle, cl_device_type type, cl_uint entries, cl_device_id* devices,
                      cl_uint* count_out) {
  Platform* platform = live_platform(handle);
  if (!platform) return CL_INVALID_PLATFORM;
  if ((devices && entries == 0) || (!devices && !count_out)) return CL_INVALID_VALUE;
  if (count_out) *count_out = 0;
  const auto found = devices_of_type(*platform, type);
  if (!found) return found.error();
  if (count_out) *count_out = static_cast<cl_uint>(found->size());
  for (std::size_t next = 0; devices && next < found->size() && next < entries; ++next) {
    devices[next] = reinterpret_cast<cl_device_id>((*found)[next]);
  }
  return CL_SUCCESS;
}

namespace {

cl_int answer_language_features(const Room& room, Device& device) {
  const auto& bytes = told_of(device, CL_DEVICE_OPENCL_C_FEATURES);
  if (!bytes) return bytes.error();
  auto features = list_from_bytes<cl_name_version>(*bytes);
  std::erase_if(features, [](const cl_name_version& feature) { return is_hidden_language_feature(feature.name); });
  return answer(room, features);
}

}  // namespace

cl_int clGetDeviceInfo(cl_device_id handle, cl_device_info query, std::size_t size, void* value,
                       std::size_t* size_ret) {
  Device* device = live<Device>(handle);
  if (!device) return CL_INVALID_DEVICE;
  const Room room{size, value, size_ret};
  switch (query) {
    case CL_DEVICE_TYPE:
      return answer(room, device->limits.type);
    case CL_DEVICE_PLATFORM:
      return answer(room, reinterpret_cast<cl_platform_id>(device->platform));
    case CL_DEVICE_PARENT_DEVICE:
      return answer(room, reinterpret_cast<cl_device_id>(device->parent.get()));
    case CL_DEVICE_REFERENCE_COUNT:
      return answer(room, cl_uint{device->parent ? device->program_references() : 1});
    case CL_DEVICE_EXTENSIONS: {
      const auto& all = told_of(*device, query);
      return all ? answer(room, offered_extensions(text_from_bytes(*all))) : all.error();
    }
    case CL_DEVICE_EXTENSIONS_WITH_VERSION: {
      const auto& all = told_of(*device, query);
      return all ? answer(room, offered_extensions(list_from_bytes<cl_name_version>(*all))) : all.error();
    }
    case CL_DEVICE_OPENCL_C_FEATURES:
      return answer_language_features(room, *device);
    default:
      break;
  }
  const auto& fact = told_of(*device, query);
  if (fact && hidden_feature_answer_size(query) != 0)
    return answer(room, Result{Bytes(hidden_feature_answer_size(query))});
  return answer(room, fact);
}

cl_int clCreateSubDevices(cl_device_id handle, const cl_device_partition_property* how, cl_uint entries,
                          cl_device_id* devices, cl_uint* count_out) {
  Device* parent = live<Device>(handle);
  if (!parent) return CL_INVALID_DEVICE;
  if (!how || (devices && entries == 0) || (!devices && !count_out)) return CL_INVALID_VALUE;
  Executor& executor = executor_of(*parent);
  const auto count = executor.count_sub_devices(parent->id(), how);
  if (!count) return count.error();
  if (devices && entries < *count) return CL_INVALID_VALUE;
  if (count_out) *count_out = *count;
  if (!devices) return CL_SUCCESS;
  std::vector<Ref<Device>> made;
  std::vector<ObjectId> ids;
  for (cl_uint next = 0; next < *count; ++next) {
    made.push_back(Ref<Device>::adopt(slab<Device>().create(parent->platform, parent->home, parent)));
    ids.push_back(made.back()->id());
  }
  if (const cl_int code = executor.create_sub_devices(parent->id(), how, ids); code != CL_SUCCESS) return code;
  std::size_t length = 0;
  while (how[length] != 0) ++length;
  for (cl_uint next = 0; next < *count; ++next) {
    made[next]->is_named = true;
    made[next]->number = next;
    made[next]->partition.assign(how, how + length + 1);
    fill_limits(*made[next]);
    devices[next] = reinterpret_cast<cl_device_id>(made[next].hand_out());
  }
  return CL_SUCCESS;
}

// Root devices are not counted: the specification gives retaining and releasing them no effect.
cl_int clRetainDevice(cl_device_id handle) {
  Device* device = live<Device>(handle);
  if (!device) return CL_INVALID_DEVICE;
  if (device->parent) device->program_retain();
  return CL_SUCCESS;
}

cl_int clReleaseDevice(cl_device_id handle) {
  Device* device = live<Device>(handle);
  if (!device) return CL_INVALID_DEVICE;
  return !device->parent || program_release(device) ? CL_SUCCESS : CL_INVALID_DEVICE;
}

cl_int clGetDeviceAndHostTimer(cl_device_id handle, cl_ulong* device_time, cl_ulong* host_time) {
  Device* device = live<Device>(handle);
  if (!device) return CL_INVALID_DEVICE;
  if (!device_time || !host_time) return CL_INVALID_VALUE;
  if (device->platform->host_timer_resolution == 0) return CL_INVALID_OPERATION;
  const auto times = executor_of(*device).device_and_host_timer(device->id());
  if (!times) return times.error();
  *device_time = (*times)[0];
  *host_time = (*times)[1];
  return CL_SUCCESS;
}

cl_int clGetHostTimer(cl_device_id handle, cl_ulong* host_time) {
  Device* device = live<Device>(handle);
  if (!device) return CL_INVALID_DEVICE;
  if (!host_time) return CL_INVALID_VALUE;
  if (device->platform->host_timer_resolution == 0) return CL_INVALID_OPERATION;
  const auto times = executor_of(*device).device_and_host_timer(device->id());
  if (!times) return times.error();
  *host_time = (*times)[1];
  return CL_SUCCESS;
}

cl_int clSetDefaultDeviceCommandQueue(cl_context context_handle, cl_device_id device_handle, cl_command_queue) {
  const Context* context = live<Context>(context_handle);
  if (!context) return CL_INVALID_CONTEXT;
  const Device* device = live<Device>(device_handle);
  if (!device || !context->has(*device)) return CL_INVALID_DEVICE;
  return CL_INVALID_OPERATION;  // no queues on devices, whatever queue it is
}

}  // namespace grus::api
