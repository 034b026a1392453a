// Entry points: contexts.
#include <algorithm>
#include <memory>

#include "api/answer.hpp"
#include "api/call.hpp"
#include "api/check.hpp"
#include "api/platforms.hpp"
#include "command/callbacks.hpp"

namespace grus::api {
namespace {

using Notify = void(CL_CALLBACK*)(const char*, const void*, std::size_t, void*);

struct ContextProperties {
  Platform* platform = nullptr;
  std::vector<cl_context_properties> as_given;  // with the closing zero
  std::vector<cl_context_properties> others;    // without the platform, for the executor
};

Result<ContextProperties> parse(const cl_context_properties* properties) {
  ContextProperties parsed;
  bool user_sync_seen = false;
  for (; properties && *properties != 0; properties += 2) {
    switch (properties[0]) {
      case CL_CONTEXT_PLATFORM:
        if (parsed.platform) return Failure{CL_INVALID_PROPERTY};
        parsed.platform = live_platform(reinterpret_cast<cl_platform_id>(properties[1]));
        if (!parsed.platform) return Failure{CL_INVALID_PLATFORM};
        break;
      case CL_CONTEXT_INTEROP_USER_SYNC:
        if (user_sync_seen || (properties[1] != CL_TRUE && properties[1] != CL_FALSE))
          return Failure{CL_INVALID_PROPERTY};
        user_sync_seen = true;
        parsed.others.insert(parsed.others.end(), properties, properties + 2);
        break;
      default:
        return Failure{CL_INVALID_PROPERTY};
    }
    parsed.as_given.insert(parsed.as_given.end(), properties, properties + 2);
  }
  if (properties) parsed.as_given.push_back(0);
  return parsed;
}

// The vendor's errors reach the program on Grus's thread, with copies of what they point to.
ErrorNotice notice_for(Notify notify, void* user_data) {
  if (!notify) return nullptr;
  return [notify, user_data](const char* text, const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    callbacks::post(
        [notify, user_data, text = std::string{text ? text : ""}, copy = bytes ? Bytes(bytes, bytes + size) : Bytes{}] {
          notify(text.c_str(), copy.empty() ? nullptr : copy.data(), copy.size(), user_data);
        });
  };
}

Result<cl_context> create(ContextProperties properties, std::span<Device* const> devices, Notify notify,
                          void* user_data) {
  const PlatformBelow& home = devices[0]->home;
  Executor& executor = executor_of(*devices[0]);
  auto context = Ref<Context>::adopt(slab<Context>().create(executor));
  std::vector<ObjectId> ids;
  for (Device* device : devices) {
    // Devices of several servers may share a platform, but not a context.
    if (device->home.executor != home.executor || device->home.index != home.index) return Failure{CL_INVALID_DEVICE};
    if (context->has(*device)) continue;  // named twice
    context->devices.emplace_back(device);
    ids.push_back(device->id());
  }
  context->notice = notice_for(notify, user_data);
  const cl_int code = executor.create_context(context->id(), ids, home.index, properties.others, context->notice);
  if (code != CL_SUCCESS) return Failure{code};
  context->created = true;
  context->properties = std::move(properties.as_given);
  context->properties_below = std::move(properties.others);
  return reinterpret_cast<cl_context>(context.hand_out());
}

}  // namespace

Result<cl_context> clCreateContext(const cl_context_properties* properties, cl_uint count, const cl_device_id* handles,
                                   Notify notify, void* user_data) {
  auto parsed = parse(properties);
  if (!parsed) return Failure{parsed.error()};
  if (!handles || count == 0 || (!notify && user_data)) return Failure{CL_INVALID_VALUE};
  std::vector<Device*> devices;
  for (cl_uint next = 0; next < count; ++next) {
    devices.push_back(live<Device>(handles[next]));
    if (!devices.back()) return Failure{CL_INVALID_DEVICE};
    if (parsed->platform && devices.back()->platform != parsed->platform) return Failure{CL_INVALID_DEVICE};
  }
  return create(std::move(*parsed), devices, notify, user_data);
}

Result<cl_context> clCreateContextFromType(const cl_context_properties* properties, cl_device_type type, Notify notify,
                                           void* user_data) {
  auto parsed = parse(properties);
  if (!parsed) return Failure{parsed.error()};
  if (!notify && user_data) return Failure{CL_INVALID_VALUE};
  Platform* platform = parsed->platform;
  if (!platform && !all_platforms().empty()) platform = all_platforms().front();
  if (!platform) return Failure{CL_INVALID_PLATFORM};
  const auto devices = devices_of_type(*platform, type);
  if (!devices) return Failure{devices.error()};
  return create(std::move(*parsed), *devices, notify, user_data);
}

cl_int clRetainContext(cl_context handle) { return retain<Context>(handle, CL_INVALID_CONTEXT); }
cl_int clReleaseContext(cl_context handle) { return release_handle<Context>(handle, CL_INVALID_CONTEXT); }

cl_int clGetContextInfo(cl_context handle, cl_context_info query, std::size_t size, void* value,
                        std::size_t* size_ret) {
  Context* context = live<Context>(handle);
  if (!context) return CL_INVALID_CONTEXT;
  const Room room{size, value, size_ret};
  switch (query) {
    case CL_CONTEXT_REFERENCE_COUNT:
      return answer(room, cl_uint{context->program_references()});
    case CL_CONTEXT_NUM_DEVICES:
      return answer(room, static_cast<cl_uint>(context->devices.size()));
    case CL_CONTEXT_DEVICES: {
      std::vector<cl_device_id> devices;
      for (const auto& device : context->devices) devices.push_back(reinterpret_cast<cl_device_id>(device.get()));
      return answer(room, devices);
    }
    case CL_CONTEXT_PROPERTIES:
      return answer(room, context->properties);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clSetContextDestructorCallback(cl_context handle, void(CL_CALLBACK* notify)(cl_context, void*),
                                      void* user_data) {
  Context* context = live<Context>(handle);
  if (!context) return CL_INVALID_CONTEXT;
  if (!notify) return CL_INVALID_VALUE;
  const std::lock_guard lock{context->callbacks_mutex};
  context->destructor_callbacks.emplace_back([=] { callbacks::post([=] { notify(handle, user_data); }); });
  return CL_SUCCESS;
}

}  // namespace grus::api
