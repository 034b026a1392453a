// One round of work on a vendor's driver, below everything of Grus's: a context, a queue, a buffer, a kernel that runs,
// and all of it released again.
#pragma once

#include <string>
#include <vector>

#include "executor/vendor.hpp"

namespace grus::test {

// What went wrong; empty if all is well.
inline std::string use_vendor(const Vendor& vendor) {
  constexpr std::size_t kItems = 1024;
  constexpr std::size_t kSize = kItems * sizeof(cl_int);
  const char* source = "kernel void increment(global int* data) { data[get_global_id(0)] += 1; }";
  cl_platform_id platform = vendor.platforms().at(0);
  const cl_icd_dispatch& call = functions(platform);
  cl_device_id device = nullptr;
  cl_int code = call.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr);
  if (code != CL_SUCCESS) return "clGetDeviceIDs: " + std::to_string(code);
  cl_context context = call.clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  if (!context) return "clCreateContext: " + std::to_string(code);
  cl_command_queue queue = call.clCreateCommandQueue(context, device, 0, &code);
  std::vector<cl_int> values(kItems, 41);
  cl_mem buffer = call.clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, kSize, values.data(), &code);
  cl_program program = call.clCreateProgramWithSource(context, 1, &source, nullptr, &code);
  code = call.clBuildProgram(program, 1, &device, nullptr, nullptr, nullptr);
  if (code != CL_SUCCESS) return "clBuildProgram: " + std::to_string(code);
  cl_kernel kernel = call.clCreateKernel(program, "increment", &code);
  call.clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
  code = call.clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &kItems, nullptr, 0, nullptr, nullptr);
  if (code != CL_SUCCESS) return "clEnqueueNDRangeKernel: " + std::to_string(code);
  code = call.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, kSize, values.data(), 0, nullptr, nullptr);
  if (code != CL_SUCCESS) return "clEnqueueReadBuffer: " + std::to_string(code);
  call.clReleaseKernel(kernel);
  call.clReleaseProgram(program);
  call.clReleaseMemObject(buffer);
  call.clReleaseCommandQueue(queue);
  call.clReleaseContext(context);
  for (const cl_int value : values) {
    if (value != 42) return "a kernel's result is wrong";
  }
  return {};
}

}  // namespace grus::test
