// The one platform and its one device, which claims to be a GPU with memory of its own.
#include "answer.hpp"
#include "behaviour.hpp"
#include "objects.hpp"

namespace fake {
namespace {

_cl_platform_id g_platform;
_cl_device_id g_device;

constexpr cl_ulong kMemory = cl_ulong{256} << 20;

cl_int answer_text(const Room& room, cl_device_info query) {
  switch (query) {
    case CL_DEVICE_NAME:
      return answer(room, std::string{"Grus Fake device"});
    case CL_DEVICE_VENDOR:
      return answer(room, std::string{"Grus"});
    case CL_DEVICE_VERSION:
      return answer(room, std::string{"OpenCL 1.2 fake"});
    case CL_DRIVER_VERSION:
      return answer(room, std::string{"1"});
    case CL_DEVICE_OPENCL_C_VERSION:
      return answer(room, std::string{"OpenCL C 1.2 fake"});
    case CL_DEVICE_PROFILE:
      return answer(room, std::string{"FULL_PROFILE"});
    case CL_DEVICE_EXTENSIONS:
    case CL_DEVICE_BUILT_IN_KERNELS:
      return answer(room, std::string{});
    default:
      return CL_INVALID_VALUE;
  }
}

}  // namespace

cl_int clGetPlatformIDs(cl_uint entries, cl_platform_id* platforms, cl_uint* count) {
  const bool none = is_told("no-platforms");
  if (count) *count = none ? 0 : 1;
  if (none) return CL_PLATFORM_NOT_FOUND_KHR;
  if (platforms && entries != 0) *platforms = &g_platform;
  return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info query, size_t size, void* value, size_t* size_out) {
  if (platform != &g_platform) return CL_INVALID_PLATFORM;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_PLATFORM_NAME:
      return answer(room, std::string{"Grus Fake"});
    case CL_PLATFORM_VENDOR:
      return answer(room, std::string{"Grus"});
    case CL_PLATFORM_VERSION:
      return answer(room, std::string{"OpenCL 1.2 fake"});
    case CL_PLATFORM_PROFILE:
      return answer(room, std::string{"FULL_PROFILE"});
    case CL_PLATFORM_EXTENSIONS:
      return answer(room, std::string{"cl_khr_icd"});
    case CL_PLATFORM_ICD_SUFFIX_KHR:
      return answer(room, std::string{"FAKE"});
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clUnloadPlatformCompiler(cl_platform_id platform) {
  return platform == &g_platform ? CL_SUCCESS : CL_INVALID_PLATFORM;
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint entries, cl_device_id* devices,
                      cl_uint* count) {
  if (platform != &g_platform) return CL_INVALID_PLATFORM;
  const bool found = type == CL_DEVICE_TYPE_ALL || (type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT)) != 0;
  if (count) *count = found ? 1 : 0;
  if (!found) return CL_DEVICE_NOT_FOUND;
  if (devices && entries != 0) *devices = &g_device;
  return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info query, size_t size, void* value, size_t* size_out) {
  if (device != &g_device) return CL_INVALID_DEVICE;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_DEVICE_TYPE:
      return answer(room, cl_device_type{CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT});
    case CL_DEVICE_PLATFORM:
      return answer(room, cl_platform_id{&g_platform});
    case CL_DEVICE_MAX_COMPUTE_UNITS:
    case CL_DEVICE_REFERENCE_COUNT:
      return answer(room, cl_uint{1});
    case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS:
      return answer(room, cl_uint{3});
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
      return answer(room, std::array<std::size_t, 3>{1024, 1024, 64});
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
    case CL_DEVICE_MAX_PARAMETER_SIZE:
      return answer(room, std::size_t{1024});
    case CL_DEVICE_ADDRESS_BITS:
      return answer(room, cl_uint{64});
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
      return answer(room, cl_uint{1024});
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
    case CL_DEVICE_GLOBAL_MEM_SIZE:
      return answer(room, kMemory);
    case CL_DEVICE_LOCAL_MEM_SIZE:
    case CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE:
      return answer(room, cl_ulong{65536});
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
      return answer(room, cl_bool{is_told("unified")});
    case CL_DEVICE_IMAGE_SUPPORT:
    case CL_DEVICE_LINKER_AVAILABLE:
    case CL_DEVICE_ERROR_CORRECTION_SUPPORT:
      return answer(room, cl_bool{CL_FALSE});
    case CL_DEVICE_AVAILABLE:
    case CL_DEVICE_COMPILER_AVAILABLE:
    case CL_DEVICE_ENDIAN_LITTLE:
      return answer(room, cl_bool{CL_TRUE});
    case CL_DEVICE_EXECUTION_CAPABILITIES:
      return answer(room, cl_device_exec_capabilities{CL_EXEC_KERNEL});
    case CL_DEVICE_QUEUE_PROPERTIES:
      return answer(room, cl_command_queue_properties{CL_QUEUE_PROFILING_ENABLE});
    case CL_DEVICE_PROFILING_TIMER_RESOLUTION:
      return answer(room, std::size_t{1});
    default:
      return answer_text(room, query);
  }
}

cl_int clRetainDevice(cl_device_id device) { return device == &g_device ? CL_SUCCESS : CL_INVALID_DEVICE; }
cl_int clReleaseDevice(cl_device_id device) { return device == &g_device ? CL_SUCCESS : CL_INVALID_DEVICE; }

}  // namespace fake
