// The first device of the first platform, a context and a queue on it: what most small programs start with.
#pragma once
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <cstdio>
#include <cstdlib>

inline void check(cl_int code, const char* call) {
  if (code == CL_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", call, code);
  std::exit(1);
}

struct OpenCl {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;

  OpenCl() {
    check(clGetPlatformIDs(1, &platform, nullptr), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), "clGetDeviceIDs");
    cl_int code = CL_SUCCESS;
    context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
    check(code, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "clCreateCommandQueue");
  }
  OpenCl(const OpenCl&) = delete;
  OpenCl& operator=(const OpenCl&) = delete;
  ~OpenCl() {
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
  }
};
