// A driver whose calls fail: the program gets the driver's code, or carries on, and nothing crashes or hangs.
#include <gtest/gtest.h>

#include "faults/support/folders.hpp"
#include "faults/support/opencl.hpp"

namespace grus::test {
namespace {

constexpr const char* kCalls[] = {
#define FAKE_CALL(name) #name,
#define FAKE_MISSING(name)
#include "fake_vendor/calls.inc"
#undef FAKE_CALL
#undef FAKE_MISSING
};

// What a program does that looks at no error code and uses whatever it gets.
void use_carelessly() {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl().clGetPlatformIDs(1, &platform, nullptr);
  if (!platform) return;  // the loader would crash
  cl().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr);
  if (!device) return;
  char name[64];
  cl().clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, nullptr);
  cl_int code = CL_SUCCESS;
  cl_context context = cl().clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  require((context == nullptr) == (code != CL_SUCCESS), "a context or an error");
  if (!context) return;
  cl_command_queue queue = cl().clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &code);
  require((queue == nullptr) == (code != CL_SUCCESS), "a queue or an error");
  constexpr std::size_t kSize = 4096;
  cl_mem buffer = cl().clCreateBuffer(context, CL_MEM_READ_WRITE, kSize, nullptr, &code);
  require((buffer == nullptr) == (code != CL_SUCCESS), "a buffer or an error");
  const char* source = "kernel void increment(global int* data) { data[get_global_id(0)] += 1; }";
  cl_program program = cl().clCreateProgramWithSource(context, 1, &source, nullptr, &code);
  cl_kernel kernel = nullptr;
  if (program) {
    cl().clBuildProgram(program, 0, nullptr, nullptr, nullptr, nullptr);
    kernel = cl().clCreateKernel(program, "increment", &code);
    require((kernel == nullptr) == (code != CL_SUCCESS), "a kernel or an error");
  }
  if (queue && buffer) {
    cl_event event = nullptr;
    std::vector<char> data(kSize);
    if (buffer && cl().clSetMemObjectDestructorCallback(
                      buffer, [](cl_mem, void*) {}, nullptr) != CL_SUCCESS)
      return;
    cl().clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, kSize, data.data(), 0, nullptr, nullptr);
    cl().clEnqueueFillBuffer(queue, buffer, "x", 1, 0, kSize, 0, nullptr, nullptr);
    void* mapped = cl().clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, kSize, 0, nullptr, nullptr, &code);
    require((mapped == nullptr) == (code != CL_SUCCESS), "a pointer or an error");
    if (mapped) cl().clEnqueueUnmapMemObject(queue, buffer, mapped, 0, nullptr, nullptr);
    if (kernel) {
      cl().clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
      const std::size_t items = 64;
      cl().clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &items, nullptr, 0, nullptr, &event);
    }
    if (event) {
      cl().clSetEventCallback(
          event, CL_COMPLETE, [](cl_event, cl_int, void*) {}, nullptr);
      cl().clWaitForEvents(1, &event);
      cl_ulong time = 0;
      cl().clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof time, &time, nullptr);
      cl().clReleaseEvent(event);
    }
    cl().clEnqueueMarkerWithWaitList(queue, 0, nullptr, nullptr);
    cl().clEnqueueBarrierWithWaitList(queue, 0, nullptr, nullptr);
    cl().clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, kSize, data.data(), 0, nullptr, nullptr);
    cl().clFlush(queue);
    cl().clFinish(queue);
  }
  if (kernel) cl().clReleaseKernel(kernel);
  if (program) cl().clReleaseProgram(program);
  if (buffer) cl().clReleaseMemObject(buffer);
  if (queue) cl().clReleaseCommandQueue(queue);
  cl().clReleaseContext(context);
}

class AnyCallFails : public FaultTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(AnyCallFails, AndTheProgramGoesOn) {
  add_fake();
  misbehave(std::string{"fail:"} + GetParam() + "=-6");
  const Ended ended = run(use_carelessly);
  EXPECT_TRUE(ended.exited_with(0)) << ended;
}

INSTANTIATE_TEST_SUITE_P(Calls, AnyCallFails, ::testing::ValuesIn(kCalls), [](const auto& test) { return test.param; });

class FailingCalls : public FaultTest {
 protected:
  // Runs the body on the fake driver, where one call fails.
  void with_failing(const std::string& call, cl_int code, const std::function<void(cl_int)>& body) {
    add_fake();
    misbehave("fail:" + call + "=" + std::to_string(code));
    const Ended ended = run([&] { body(code); });
    EXPECT_TRUE(ended.exited_with(0)) << ended;
  }
};

TEST_F(FailingCalls, LaunchTellsTheDriversCode) {
  with_failing("clEnqueueNDRangeKernel", CL_OUT_OF_RESOURCES, [](cl_int code) {
    Workload work{kFake};
    const std::size_t items = 1;
    cl_event event = nullptr;
    require(
        cl().clEnqueueNDRangeKernel(work.queue, work.kernel, 1, nullptr, &items, nullptr, 0, nullptr, &event) == code,
        "the driver's code");
    require(event == nullptr, "no event of a command that doesn't exist");
    require(work.read().front() == 0, "nothing ran, and the queue still works");
  });
}

// Enqueued behind a user event, the command fails when it is sent: its event tells, and so do those who wait for it.
TEST_F(FailingCalls, HeldBackLaunchFailsWithItsEvent) {
  with_failing("clEnqueueNDRangeKernel", CL_OUT_OF_RESOURCES, [](cl_int code) {
    Workload work{kFake};
    cl_event user = cl().clCreateUserEvent(work.context, nullptr);
    cl_event event = nullptr;
    work.launch(1, &user, &event);
    require(cl().clSetUserEventStatus(user, CL_COMPLETE) == CL_SUCCESS, "clSetUserEventStatus");
    require(cl().clWaitForEvents(1, &event) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "waiting tells");
    cl_int status = 0;
    cl().clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
    require(status == code, "the driver's code as the event's status");
    require(cl().clFinish(work.queue) == CL_SUCCESS, "clFinish doesn't hang");
    cl().clReleaseEvent(event);
    cl().clReleaseEvent(user);
  });
}

TEST_F(FailingCalls, BuildTellsTheDriversCode) {
  with_failing("clBuildProgram", CL_OUT_OF_HOST_MEMORY, [](cl_int code) {
    const auto platforms = list_platforms();
    cl_context context = cl().clCreateContext(nullptr, 1, platforms.at(0).devices.data(), nullptr, nullptr, nullptr);
    const char* source = "kernel void increment(global int* data) {}";
    cl_program program = cl().clCreateProgramWithSource(context, 1, &source, nullptr, nullptr);
    require(cl().clBuildProgram(program, 0, nullptr, nullptr, nullptr, nullptr) == code, "the driver's code");
    cl_int created = CL_SUCCESS;
    require(!cl().clCreateKernel(program, "increment", &created), "no kernel");
    require(created == CL_INVALID_PROGRAM_EXECUTABLE, "for that reason");
    cl().clReleaseProgram(program);
    cl().clReleaseContext(context);
  });
}

TEST_F(FailingCalls, DriverThatListsNoDevices) {
  with_failing("clGetDeviceIDs", CL_DEVICE_NOT_FOUND, [](cl_int code) {
    cl_platform_id platform = nullptr;
    require(cl().clGetPlatformIDs(1, &platform, nullptr) == CL_SUCCESS, "clGetPlatformIDs");
    cl_uint count = 7;
    require(cl().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) == code, "CL_DEVICE_NOT_FOUND");
    require(count == 0, "no device");
  });
}

TEST_F(FailingCalls, MemoryRunsOutAndComesBack) {
  add_fake();
  misbehave("buffers=3");
  const Ended ended = run([] {
    Workload work{kFake};  // has one
    const auto make = [&](cl_int& code) {
      return cl().clCreateBuffer(work.context, CL_MEM_READ_WRITE, 1024, nullptr, &code);
    };
    cl_int code = CL_SUCCESS;
    cl_mem second = make(code);
    cl_mem third = make(code);
    require(second && third && code == CL_SUCCESS, "three fit");
    require(!make(code) && code == CL_MEM_OBJECT_ALLOCATION_FAILURE, "four don't");
    work.use();
    cl().clReleaseMemObject(third);
    third = make(code);
    require(third && code == CL_SUCCESS, "there is room again");
    cl().clReleaseMemObject(second);
    cl().clReleaseMemObject(third);
  });
  EXPECT_TRUE(ended.exited_with(0)) << ended;
}

}  // namespace
}  // namespace grus::test
