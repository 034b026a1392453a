// How the programs of these tests begin.
#pragma once

#include <CL/cl.h>

#include <cstdio>
#include <cstdlib>

inline void check(cl_int code, const char* what) {
  if (code == CL_SUCCESS) return;
  std::fprintf(stderr, "%s: OpenCL error %d\n", what, code);
  std::exit(1);
}

struct Opened {
  cl_context context;
  cl_command_queue queue;
};

inline Opened open_device() {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  check(clGetPlatformIDs(1, &platform, nullptr), "platform");
  check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), "device");
  cl_int code = CL_SUCCESS;
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  check(code, "context");
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
  check(code, "queue");
  return {context, queue};
}
