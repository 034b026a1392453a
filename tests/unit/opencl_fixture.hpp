// A context, a queue and a small program on PoCL, through Grus's own table of functions: tests that look below the API
// link Grus statically, so that both sides are the same process and the same objects.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "api/dispatch.hpp"

namespace grus::test {

inline const cl_icd_dispatch& cl() {
  setenv("GRUS_VENDORS", "/etc/OpenCL/vendors/pocl.icd", 0);
  return dispatch_table();
}

class OpenClTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cl_uint count = 0;
    ASSERT_EQ(cl().clGetPlatformIDs(1, &platform_, &count), CL_SUCCESS)
        << "PoCL is missing: apt-get install pocl-opencl-icd";
    ASSERT_EQ(cl().clGetDeviceIDs(platform_, CL_DEVICE_TYPE_ALL, 1, &device_, nullptr), CL_SUCCESS);
    context_ = cl().clCreateContext(nullptr, 1, &device_, nullptr, nullptr, nullptr);
    ASSERT_NE(context_, nullptr);
    queue_ = make_queue(0);
  }
  void TearDown() override {
    cl().clReleaseCommandQueue(queue_);
    cl().clReleaseContext(context_);
  }

  cl_command_queue make_queue(cl_command_queue_properties properties) {
    cl_int code = CL_SUCCESS;
    cl_command_queue queue = cl().clCreateCommandQueue(context_, device_, properties, &code);
    EXPECT_EQ(code, CL_SUCCESS);
    return queue;
  }
  cl_mem make_buffer(std::size_t size) {
    cl_int code = CL_SUCCESS;
    cl_mem buffer = cl().clCreateBuffer(context_, CL_MEM_READ_WRITE, size, nullptr, &code);
    EXPECT_EQ(code, CL_SUCCESS);
    return buffer;
  }
  cl_event make_user_event() { return cl().clCreateUserEvent(context_, nullptr); }
  cl_program make_program(const char* source, const char* options = "") {
    cl_int code = CL_SUCCESS;
    cl_program program = cl().clCreateProgramWithSource(context_, 1, &source, nullptr, &code);
    EXPECT_EQ(code, CL_SUCCESS);
    EXPECT_EQ(cl().clBuildProgram(program, 0, nullptr, options, nullptr, nullptr), CL_SUCCESS);
    return program;
  }
  static cl_int status_of(cl_event event) {
    cl_int status = 99;
    cl().clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
    return status;
  }

  cl_platform_id platform_ = nullptr;
  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
};

}  // namespace grus::test
