// Valid objects of every type, in two contexts: what bad input is made of by changing one thing.
#pragma once

#include <array>
#include <cstdint>
#include <typeindex>
#include <vector>

#include "unit/bad_input/library.hpp"

namespace grus::test {

inline constexpr std::size_t kBufferSize = 4096;
inline constexpr std::size_t kImageSide = 8;

// One argument of each kind.
enum KernelArgument : cl_uint { kBufferArgument, kImageArgument, kSamplerArgument, kLocalArgument, kValueArgument };
inline const char* const kSource =
    "kernel void all_kinds(global uint* buffer, read_only image2d_t image, sampler_t sampler, local uint* scratch, "
    "uint value) {"
    "  scratch[get_local_id(0)] = value;"
    "  buffer[get_global_id(0)] = scratch[get_local_id(0)] + read_imageui(image, sampler, (int2)(0, 0)).x;"
    "}"
    "kernel void second(global uint* buffer) { buffer[get_global_id(0)] = 1; }";

// All of one context.
struct Objects {
  cl_context context;
  cl_command_queue queue;
  cl_mem buffer;
  cl_mem second_buffer;
  cl_mem sub_buffer;
  cl_mem write_only_buffer;  // for the host
  cl_mem read_only_buffer;   // for the host
  cl_mem image;
  cl_mem second_image;
  cl_mem write_only_image;  // for kernels
  cl_mem buffer_image;      // one-dimensional, made from buffer
  cl_mem volume;            // a three-dimensional image
  cl_sampler sampler;
  cl_program program;   // built, with kernels
  cl_program source;    // not built
  cl_program compiled;  // not linked
  cl_program built_in;
  cl_kernel kernel;  // with all arguments set
  cl_kernel unset_kernel;
  cl_kernel stale_kernel;   // with an argument that is gone
  cl_kernel greedy_kernel;  // with more local memory than there is
  cl_event event;           // of a command that is done, with profiling
  cl_event user_event;      // that nobody finishes
};

inline cl_program make_program(cl_context context) {
  const char* source = kSource;
  return cl().clCreateProgramWithSource(context, 1, &source, nullptr, nullptr);
}

inline cl_mem make_image(cl_context context, cl_mem_object_type type, cl_mem_flags flags, cl_mem from = nullptr) {
  const cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc desc{};
  desc.image_type = type;
  desc.image_width = kImageSide;
  desc.image_height = kImageSide;
  desc.image_depth = kImageSide;
  desc.mem_object = from;
  return cl().clCreateImage(context, flags, &format, &desc, nullptr, nullptr);
}

inline Objects make_objects(cl_device_id device) {
  Objects made{};
  made.context = cl().clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  made.queue = cl().clCreateCommandQueue(made.context, device, CL_QUEUE_PROFILING_ENABLE, nullptr);
  const auto buffer = [&](cl_mem_flags flags) {
    return cl().clCreateBuffer(made.context, flags, kBufferSize, nullptr, nullptr);
  };
  made.buffer = buffer(CL_MEM_READ_WRITE);
  made.second_buffer = buffer(CL_MEM_READ_WRITE);
  made.write_only_buffer = buffer(CL_MEM_HOST_WRITE_ONLY);
  made.read_only_buffer = buffer(CL_MEM_HOST_READ_ONLY);
  const cl_buffer_region half{kBufferSize / 2, kBufferSize / 2};
  made.sub_buffer = cl().clCreateSubBuffer(made.buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, nullptr);
  made.image = make_image(made.context, CL_MEM_OBJECT_IMAGE2D, CL_MEM_READ_WRITE);
  made.second_image = make_image(made.context, CL_MEM_OBJECT_IMAGE2D, CL_MEM_READ_WRITE);
  made.write_only_image = make_image(made.context, CL_MEM_OBJECT_IMAGE2D, CL_MEM_WRITE_ONLY);
  made.buffer_image = make_image(made.context, CL_MEM_OBJECT_IMAGE1D_BUFFER, CL_MEM_READ_WRITE, made.buffer);
  made.volume = make_image(made.context, CL_MEM_OBJECT_IMAGE3D, CL_MEM_READ_WRITE);
  made.sampler = cl().clCreateSampler(made.context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, nullptr);
  made.program = make_program(made.context);
  cl().clBuildProgram(made.program, 0, nullptr, "", nullptr, nullptr);
  made.source = make_program(made.context);
  made.compiled = make_program(made.context);
  cl().clCompileProgram(made.compiled, 0, nullptr, "", 0, nullptr, nullptr, nullptr, nullptr);
  made.built_in = cl().clCreateProgramWithBuiltInKernels(made.context, 1, &device, "pocl.add.i8", nullptr);
  made.kernel = cl().clCreateKernel(made.program, "all_kinds", nullptr);
  made.unset_kernel = cl().clCreateKernel(made.program, "second", nullptr);
  made.stale_kernel = cl().clCreateKernel(made.program, "second", nullptr);
  cl_mem gone = buffer(CL_MEM_READ_WRITE);
  cl().clSetKernelArg(made.stale_kernel, 0, sizeof gone, &gone);
  cl().clReleaseMemObject(gone);
  const cl_uint value = 1;
  cl().clSetKernelArg(made.kernel, kBufferArgument, sizeof made.buffer, &made.buffer);
  cl().clSetKernelArg(made.kernel, kImageArgument, sizeof made.image, &made.image);
  cl().clSetKernelArg(made.kernel, kSamplerArgument, sizeof made.sampler, &made.sampler);
  cl().clSetKernelArg(made.kernel, kLocalArgument, 1024, nullptr);
  cl().clSetKernelArg(made.kernel, kValueArgument, sizeof value, &value);
  cl().clEnqueueMarker(made.queue, &made.event);
  cl().clFinish(made.queue);
  made.greedy_kernel = cl().clCloneKernel(made.kernel, nullptr);
  cl().clSetKernelArg(made.greedy_kernel, kLocalArgument, SIZE_MAX, nullptr);
  made.user_event = cl().clCreateUserEvent(made.context, nullptr);
  return made;
}

// Everything valid that there is.
struct World {
  cl_platform_id platform = library().platform;
  cl_device_id device = nullptr;
  cl_device_id sub_device = nullptr;  // in no context
  cl_device_id released_device = nullptr;
  Objects own{};
  Objects other{};
  // Where calls read from and write to, and more room than any of them needs.
  alignas(64) std::array<std::byte, 1 << 16> memory{};

  World() {
    cl().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr);
    const cl_device_partition_property one_unit[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1,
                                                     CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl().clCreateSubDevices(device, one_unit, 1, &sub_device, nullptr);
    cl().clCreateSubDevices(device, one_unit, 1, &released_device, nullptr);
    cl().clReleaseDevice(released_device);
    own = make_objects(device);
    other = make_objects(device);
  }
};

inline World& world() {
  static World instance;
  return instance;
}

// Handles by type, for what is the same for all types.
inline cl_int invalid(cl_platform_id) { return CL_INVALID_PLATFORM; }
inline cl_int invalid(cl_device_id) { return CL_INVALID_DEVICE; }
inline cl_int invalid(cl_context) { return CL_INVALID_CONTEXT; }
inline cl_int invalid(cl_command_queue) { return CL_INVALID_COMMAND_QUEUE; }
inline cl_int invalid(cl_mem) { return CL_INVALID_MEM_OBJECT; }
inline cl_int invalid(cl_sampler) { return CL_INVALID_SAMPLER; }
inline cl_int invalid(cl_program) { return CL_INVALID_PROGRAM; }
inline cl_int invalid(cl_kernel) { return CL_INVALID_KERNEL; }
inline cl_int invalid(cl_event) { return CL_INVALID_EVENT; }
template <typename T>
concept Handle = requires(T handle) {
  invalid(handle);
}
&&!std::is_same_v<T, std::nullptr_t>;

inline void release(cl_device_id device) { cl().clReleaseDevice(device); }
inline void release(cl_context context) { cl().clReleaseContext(context); }
inline void release(cl_command_queue queue) { cl().clReleaseCommandQueue(queue); }
inline void release(cl_mem memory) { cl().clReleaseMemObject(memory); }
inline void release(cl_sampler sampler) { cl().clReleaseSampler(sampler); }
inline void release(cl_program program) { cl().clReleaseProgram(program); }
inline void release(cl_kernel kernel) { cl().clReleaseKernel(kernel); }
inline void release(cl_event event) { cl().clReleaseEvent(event); }

// A new object of the same type, for a test to release.
inline cl_context another(cl_context) {
  return cl().clCreateContext(nullptr, 1, &world().device, nullptr, nullptr, nullptr);
}
inline cl_command_queue another(cl_command_queue) {
  return cl().clCreateCommandQueue(world().own.context, world().device, 0, nullptr);
}
inline cl_mem another(cl_mem) { return cl().clCreateBuffer(world().own.context, 0, kBufferSize, nullptr, nullptr); }
inline cl_sampler another(cl_sampler) {
  return cl().clCreateSampler(world().own.context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, nullptr);
}
inline cl_program another(cl_program) { return make_program(world().own.context); }
inline cl_kernel another(cl_kernel) { return cl().clCreateKernel(world().own.program, "second", nullptr); }
inline cl_event another(cl_event) { return cl().clCreateUserEvent(world().own.context, nullptr); }

template <typename T>
T released(T) {
  if constexpr (std::is_same_v<T, cl_device_id>) {
    return world().released_device;
  } else {
    T object = another(T{});
    release(object);
    return object;
  }
}

// A handle of each type, with its name.
struct NamedHandle {
  const char* name;
  void* handle;
  std::type_index type;
};
inline std::vector<NamedHandle> one_of_each() {
  const auto named = [](const char* name, auto handle) { return NamedHandle{name, handle, typeid(handle)}; };
  const Objects& own = world().own;
  return {named("a platform", world().platform), named("a device", world().device), named("a context", own.context),
          named("a queue", own.queue),           named("a buffer", own.buffer),     named("a sampler", own.sampler),
          named("a program", own.program),       named("a kernel", own.kernel),     named("an event", own.event)};
}

}  // namespace grus::test
