// A loader layer that counts a program's OpenCL calls by the code they return, and at exit writes
// "call code count" lines to the file that LAYER_CALLS_FILE names.
#include <CL/cl_layer.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <type_traits>
#include <utility>

// The entry points that report an error code.
// clang-format off: it never comes to rest on this
#define CALLS(X)                        \
  X(clGetPlatformInfo)                  \
  X(clGetDeviceIDs)                     \
  X(clGetDeviceInfo)                    \
  X(clCreateContext)                    \
  X(clCreateContextFromType)            \
  X(clRetainContext)                    \
  X(clReleaseContext)                   \
  X(clGetContextInfo)                   \
  X(clCreateCommandQueue)               \
  X(clRetainCommandQueue)               \
  X(clReleaseCommandQueue)              \
  X(clGetCommandQueueInfo)              \
  X(clSetCommandQueueProperty)          \
  X(clCreateBuffer)                     \
  X(clCreateImage2D)                    \
  X(clCreateImage3D)                    \
  X(clRetainMemObject)                  \
  X(clReleaseMemObject)                 \
  X(clGetSupportedImageFormats)         \
  X(clGetMemObjectInfo)                 \
  X(clGetImageInfo)                     \
  X(clCreateSampler)                    \
  X(clRetainSampler)                    \
  X(clReleaseSampler)                   \
  X(clGetSamplerInfo)                   \
  X(clCreateProgramWithSource)          \
  X(clCreateProgramWithBinary)          \
  X(clRetainProgram)                    \
  X(clReleaseProgram)                   \
  X(clBuildProgram)                     \
  X(clGetProgramInfo)                   \
  X(clGetProgramBuildInfo)              \
  X(clCreateKernel)                     \
  X(clCreateKernelsInProgram)           \
  X(clRetainKernel)                     \
  X(clReleaseKernel)                    \
  X(clSetKernelArg)                     \
  X(clGetKernelInfo)                    \
  X(clGetKernelWorkGroupInfo)           \
  X(clWaitForEvents)                    \
  X(clGetEventInfo)                     \
  X(clRetainEvent)                      \
  X(clReleaseEvent)                     \
  X(clGetEventProfilingInfo)            \
  X(clFlush)                            \
  X(clFinish)                           \
  X(clEnqueueReadBuffer)                \
  X(clEnqueueWriteBuffer)               \
  X(clEnqueueCopyBuffer)                \
  X(clEnqueueReadImage)                 \
  X(clEnqueueWriteImage)                \
  X(clEnqueueCopyImage)                 \
  X(clEnqueueCopyImageToBuffer)         \
  X(clEnqueueCopyBufferToImage)         \
  X(clEnqueueMapBuffer)                 \
  X(clEnqueueMapImage)                  \
  X(clEnqueueUnmapMemObject)            \
  X(clEnqueueNDRangeKernel)             \
  X(clEnqueueTask)                      \
  X(clEnqueueNativeKernel)              \
  X(clEnqueueMarker)                    \
  X(clEnqueueWaitForEvents)             \
  X(clEnqueueBarrier)                   \
  X(clSetEventCallback)                 \
  X(clCreateSubBuffer)                  \
  X(clSetMemObjectDestructorCallback)   \
  X(clCreateUserEvent)                  \
  X(clSetUserEventStatus)               \
  X(clEnqueueReadBufferRect)            \
  X(clEnqueueWriteBufferRect)           \
  X(clEnqueueCopyBufferRect)            \
  X(clCreateSubDevices)                 \
  X(clRetainDevice)                     \
  X(clReleaseDevice)                    \
  X(clCreateImage)                      \
  X(clCreateProgramWithBuiltInKernels)  \
  X(clCompileProgram)                   \
  X(clLinkProgram)                      \
  X(clUnloadPlatformCompiler)           \
  X(clGetKernelArgInfo)                 \
  X(clEnqueueFillBuffer)                \
  X(clEnqueueFillImage)                 \
  X(clEnqueueMigrateMemObjects)         \
  X(clEnqueueMarkerWithWaitList)        \
  X(clEnqueueBarrierWithWaitList)       \
  X(clCreateCommandQueueWithProperties) \
  X(clCreateSamplerWithProperties)      \
  X(clCloneKernel)                      \
  X(clCreateProgramWithIL)              \
  X(clGetDeviceAndHostTimer)            \
  X(clGetHostTimer)                     \
  X(clGetKernelSubGroupInfo)            \
  X(clCreateBufferWithProperties)       \
  X(clCreateImageWithProperties)        \
  X(clSetContextDestructorCallback)     \
  X(clSetProgramSpecializationConstant)
// clang-format on

namespace {

#define NAME(call) #call,
constexpr const char* kNames[] = {CALLS(NAME)};
#define INDEX(call) index_##call,
enum Index { CALLS(INDEX) index_count };

constexpr int kLowest = -1200;  // below any code of the core API and of vendors' extensions
std::array<std::array<std::atomic<unsigned long>, -kLowest + 1>, index_count> counts;
const cl_icd_dispatch* below;
cl_icd_dispatch layer;

void note(Index index, cl_int code) { ++counts[index][code > 0 || code < kLowest ? 0 : -code]; }

template <Index index, auto member>
struct Counted;

template <Index index, typename R, typename... A, R (CL_API_CALL* cl_icd_dispatch::*member)(A...)>
struct Counted<index, member> {
  static R CL_API_CALL call(A... arguments) {
    if constexpr (std::is_same_v<R, cl_int>) {
      const cl_int code = (below->*member)(arguments...);
      note(index, code);
      return code;
    } else {
      return with_code(std::index_sequence_for<A...>{}, arguments...);
    }
  }

 private:
  // The last argument takes the code, and may be null.
  template <std::size_t... i>
  static R with_code(std::index_sequence<i...>, A... arguments) {
    auto all = std::make_tuple(arguments...);
    cl_int unseen = CL_SUCCESS;
    auto& code = std::get<sizeof...(A) - 1>(all);
    if (!code) code = &unseen;
    const R result = (below->*member)(std::get<i>(all)...);
    note(index, *code);
    return result;
  }
};

void write_counts() {
  const char* path = std::getenv("LAYER_CALLS_FILE");
  std::FILE* file = path ? std::fopen(path, "w") : nullptr;
  if (!file) return;
  for (int index = 0; index < index_count; ++index)
    for (int code = 0; code <= -kLowest; ++code)
      if (const auto count = counts[index][code].load()) std::fprintf(file, "%s %d %lu\n", kNames[index], -code, count);
  std::fclose(file);
}

}  // namespace

extern "C" CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t room, void* answer, size_t* size) {
  if (what != CL_LAYER_API_VERSION) return CL_INVALID_VALUE;
  if (answer && room < sizeof(cl_layer_api_version)) return CL_INVALID_VALUE;
  if (answer) *static_cast<cl_layer_api_version*>(answer) = CL_LAYER_API_VERSION_100;
  if (size) *size = sizeof(cl_layer_api_version);
  return CL_SUCCESS;
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch* target,
                                                       cl_uint* entries_out, const cl_icd_dispatch** layer_out) {
  if (!target || !entries_out || !layer_out || entries < sizeof layer / sizeof(void*)) return CL_INVALID_VALUE;
  below = target;
  layer = *target;
#define COUNT(name) layer.name = Counted<index_##name, &cl_icd_dispatch::name>::call;
  CALLS(COUNT)
  *entries_out = sizeof layer / sizeof(void*);
  *layer_out = &layer;
  std::atexit(write_counts);
  return CL_SUCCESS;
}
