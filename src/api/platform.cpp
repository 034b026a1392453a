// Entry points: platforms, compilers and extension addresses.
#include <cstring>

#include "api/answer.hpp"
#include "api/call.hpp"
#include "api/describe.hpp"
#include "api/dispatch.hpp"
#include "api/platforms.hpp"
#include "api/session.hpp"

namespace grus::api {

cl_int clGetPlatformIDs(cl_uint entries, cl_platform_id* platforms, cl_uint* count_out) {
  if ((platforms && entries == 0) || (!platforms && !count_out)) return CL_INVALID_VALUE;
  const auto& all = all_platforms();
  if (count_out) *count_out = static_cast<cl_uint>(all.size());
  if (all.empty()) return CL_PLATFORM_NOT_FOUND_KHR;
  for (std::size_t next = 0; platforms && next < all.size() && next < entries; ++next) {
    platforms[next] = reinterpret_cast<cl_platform_id>(all[next]);
  }
  return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id handle, cl_platform_info query, std::size_t size, void* value,
                         std::size_t* size_ret) {
  Platform* platform = live_platform(handle);
  if (!platform) return CL_INVALID_PLATFORM;
  const Room room{size, value, size_ret};
  unsigned major = 0;
  unsigned minor = 0;
  std::sscanf(platform->version.c_str(), "OpenCL %u.%u", &major, &minor);
  switch (query) {
    case CL_PLATFORM_PROFILE:
      return answer(room, platform->profile);
    case CL_PLATFORM_VERSION:
      return answer(room, platform->version);
    case CL_PLATFORM_NAME:
      return answer(room, platform->name);
    case CL_PLATFORM_VENDOR:
      return answer(room, platform->vendor);
    case CL_PLATFORM_EXTENSIONS:
      return answer(room, platform->extensions);
    case CL_PLATFORM_ICD_SUFFIX_KHR:
      return answer(room, std::string{"GRUS"});
    case CL_PLATFORM_HOST_TIMER_RESOLUTION:
      return major * 10 + minor >= 21 ? answer(room, platform->host_timer_resolution) : CL_INVALID_VALUE;
    case CL_PLATFORM_NUMERIC_VERSION:
      return major >= 3 ? answer(room, cl_version{CL_MAKE_VERSION(major, minor, 0)}) : CL_INVALID_VALUE;
    case CL_PLATFORM_EXTENSIONS_WITH_VERSION:
      return major >= 3 ? answer(room, platform->versioned_extensions) : CL_INVALID_VALUE;
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clUnloadPlatformCompiler(cl_platform_id handle) {
  Platform* platform = live_platform(handle);
  if (!platform) return CL_INVALID_PLATFORM;
  cl_int code = CL_SUCCESS;
  for (const auto& below : platform->below) {
    if (drivers_are_lost_by_fork() || code != CL_SUCCESS) break;
    code = static_cast<Executor*>(below.executor)->unload_compiler(below.index);
  }
  return code;
}

cl_int clUnloadCompiler() { return CL_SUCCESS; }

// Only ever Grus's own functions: a vendor's would be handed Grus's handles.
void* clGetExtensionFunctionAddress(const char* name) {
  if (!name) return nullptr;
  const cl_icd_dispatch& table = dispatch_table();
  struct Function {
    const char* name;
    void* address;
  };
  const Function functions[] = {
      {"clIcdGetPlatformIDsKHR", reinterpret_cast<void*>(table.clGetPlatformIDs)},
      {"clGetPlatformInfo", reinterpret_cast<void*>(table.clGetPlatformInfo)},
      {"clCreateProgramWithILKHR", reinterpret_cast<void*>(table.clCreateProgramWithIL)},
      {"clCreateCommandQueueWithPropertiesKHR", reinterpret_cast<void*>(table.clCreateCommandQueueWithProperties)},
      {"clGetKernelSubGroupInfoKHR", reinterpret_cast<void*>(table.clGetKernelSubGroupInfo)},
      {"grusDescribeDevice", reinterpret_cast<void*>(&describe_device)},
  };
  for (const Function& function : functions) {
    if (std::strcmp(function.name, name) == 0) return function.address;
  }
  return nullptr;
}

void* clGetExtensionFunctionAddressForPlatform(cl_platform_id handle, const char* name) {
  return live_platform(handle) ? clGetExtensionFunctionAddress(name) : nullptr;
}

}  // namespace grus::api
