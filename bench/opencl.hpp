// Plain OpenCL with owned handles, for the programs of this folder. Nothing here knows about Grus: the same executable
// runs natively and through it.
#pragma once

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace bench {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(const char* what, cl_int code);

inline void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS) [[unlikely]]
    fail(what, code);
}

template <auto release>
struct Release {
  void operator()(auto* handle) const { release(handle); }
};
template <class HandleType, auto release>
using Owned = std::unique_ptr<std::remove_pointer_t<HandleType>, Release<release>>;

using Context = Owned<cl_context, clReleaseContext>;
using Queue = Owned<cl_command_queue, clReleaseCommandQueue>;
using Program = Owned<cl_program, clReleaseProgram>;
using Kernel = Owned<cl_kernel, clReleaseKernel>;
using Buffer = Owned<cl_mem, clReleaseMemObject>;
using Event = Owned<cl_event, clReleaseEvent>;

// tick: launches that were lost or ran twice show in the count. store: launches that took another launch's arguments
// show in what was stored where. saxpy: something between a write and a read.
inline constexpr const char* kCountingKernels = R"(
kernel void tick(global uint* count) { *count += 1; }
kernel void store(global uint* out, uint index, uint value) { out[index] = value; }
kernel void saxpy(global float* y, float a) { y[get_global_id(0)] += a; }
)";

// Which device to measure: substrings of its names, never an index, since Grus and the loader may order them
// differently.
struct Choice {
  std::string platform;
  std::string device;
};

// One device with a context, an in-order queue and a program.
class Device {
 public:
  explicit Device(const Choice& choice);

  void build(const char* source, const std::string& options = "");  // before any kernel

  cl_context context() const { return context_.get(); }
  cl_command_queue queue() const { return queue_.get(); }
  cl_device_id id() const { return id_; }
  bool is_cpu() const { return (type_ & CL_DEVICE_TYPE_CPU) != 0; }

  std::string platform_text(cl_platform_info what) const;
  std::string text(cl_device_info what) const;

  Kernel kernel(const char* name) const;
  Buffer buffer(size_t size, cl_mem_flags flags = CL_MEM_READ_WRITE, void* host = nullptr) const;

  void finish() const { check(clFinish(queue()), "clFinish"); }
  void launch(cl_kernel kernel, cl_event* event = nullptr) const {
    const size_t one = 1;
    check(clEnqueueNDRangeKernel(queue(), kernel, 1, nullptr, &one, nullptr, 0, nullptr, event),
          "clEnqueueNDRangeKernel");
  }
  void write(cl_mem buffer, size_t offset, size_t size, const void* from) const {
    check(clEnqueueWriteBuffer(queue(), buffer, CL_TRUE, offset, size, from, 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
  }
  void read(cl_mem buffer, size_t offset, size_t size, void* to) const {
    check(clEnqueueReadBuffer(queue(), buffer, CL_TRUE, offset, size, to, 0, nullptr, nullptr), "clEnqueueReadBuffer");
  }
  void* map(cl_mem buffer, size_t size, cl_map_flags flags) const {
    cl_int code = CL_SUCCESS;
    void* pointer = clEnqueueMapBuffer(queue(), buffer, CL_TRUE, flags, 0, size, 0, nullptr, nullptr, &code);
    check(code, "clEnqueueMapBuffer");
    return pointer;
  }
  void unmap(cl_mem buffer, void* pointer) const {
    check(clEnqueueUnmapMemObject(queue(), buffer, pointer, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
  }

 private:
  void choose(const Choice& choice);

  cl_platform_id platform_ = nullptr;
  cl_device_id id_ = nullptr;
  cl_device_type type_ = 0;
  Context context_;
  Queue queue_;
  Program program_;
};

}  // namespace bench
