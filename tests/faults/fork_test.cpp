// fork: in the child of a process that has used OpenCL, every inherited handle is invalid and there are no devices; the
// parent notices nothing. A child of a process that has not is as good as any.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "faults/support/folders.hpp"
#include "faults/support/opencl.hpp"

namespace grus::test {
namespace {

constexpr const char* kMessage = "this process was forked from one that had used OpenCL";

// Forks, and waits for the child to do that and end as programs do.
void in_fork(const std::function<void()>& body) {
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (child == 0) {
    body();
    std::exit(0);
  }
  require(ended_well(child), "the forked child ends well");
}

void expect_invalid(const Workload& work) {
  const auto& call = cl();
  cl_int value = 0;
  cl_int code = CL_SUCCESS;
  require(call.clGetDeviceInfo(work.device, CL_DEVICE_TYPE, 0, nullptr, nullptr) == CL_INVALID_DEVICE, "device");
  require(call.clRetainContext(work.context) == CL_INVALID_CONTEXT, "retain context");
  require(call.clReleaseContext(work.context) == CL_INVALID_CONTEXT, "release context");
  require(!call.clCreateContext(nullptr, 1, &work.device, nullptr, nullptr, &code) && code == CL_INVALID_DEVICE,
          "create context");
  require(!call.clCreateBuffer(work.context, 0, 16, nullptr, &code) && code == CL_INVALID_CONTEXT, "create buffer");
  require(!call.clCreateUserEvent(work.context, &code) && code == CL_INVALID_CONTEXT, "create user event");
  require(call.clFinish(work.queue) == CL_INVALID_COMMAND_QUEUE, "finish");
  require(call.clFlush(work.queue) == CL_INVALID_COMMAND_QUEUE, "flush");
  require(call.clReleaseCommandQueue(work.queue) == CL_INVALID_COMMAND_QUEUE, "release queue");
  require(call.clEnqueueReadBuffer(work.queue, work.buffer, CL_TRUE, 0, 4, &value, 0, nullptr, nullptr) ==
              CL_INVALID_COMMAND_QUEUE,
          "read");
  const std::size_t items = 1;
  require(call.clEnqueueNDRangeKernel(work.queue, work.kernel, 1, nullptr, &items, nullptr, 0, nullptr, nullptr) ==
              CL_INVALID_COMMAND_QUEUE,
          "launch");
  require(call.clReleaseMemObject(work.buffer) == CL_INVALID_MEM_OBJECT, "release buffer");
  require(call.clBuildProgram(work.program, 0, nullptr, nullptr, nullptr, nullptr) == CL_INVALID_PROGRAM, "build");
  require(call.clReleaseProgram(work.program) == CL_INVALID_PROGRAM, "release program");
  require(call.clSetKernelArg(work.kernel, 0, sizeof work.buffer, &work.buffer) == CL_INVALID_KERNEL, "argument");
  require(call.clReleaseKernel(work.kernel) == CL_INVALID_KERNEL, "release kernel");
}

void expect_no_device(const Workload& work) {
  cl_uint count = 7;
  cl_int code = CL_SUCCESS;
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                              reinterpret_cast<cl_context_properties>(work.platform), 0};
  require(cl().clGetDeviceIDs(work.platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) == CL_DEVICE_NOT_FOUND,
          "CL_DEVICE_NOT_FOUND");
  require(!cl().clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, nullptr, nullptr, &code), "no context");
  require(code == CL_DEVICE_NOT_FOUND, "for that reason");
  require(cl().clGetPlatformInfo(work.platform, CL_PLATFORM_NAME, 0, nullptr, nullptr) == CL_SUCCESS,
          "the loader keeps platforms, so they stay valid");
}

// On both drivers: one with threads that the fork loses and memory that the child shares, and one that is simple.
class Fork : public FaultTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { GetParam() == std::string{kPocl} ? add_pocl() : add_fake(); }
  void expect_well(const std::function<void()>& body) const {
    const Ended ended = run(body);
    EXPECT_TRUE(ended.exited_with(0)) << ended;
  }
};

INSTANTIATE_TEST_SUITE_P(On, Fork, ::testing::Values(kPocl, kFake),
                         [](const auto& test) { return test.param == std::string{kPocl} ? "Pocl" : "Fake"; });

TEST_P(Fork, InheritedHandlesAreInvalid) {
  expect_well([] {
    Workload work{GetParam()};
    work.use();
    in_fork([&] { expect_invalid(work); });
    work.use();
  });
}

TEST_P(Fork, ThereAreNoDevicesInTheChildAndAMessageSaysWhy) {
  const Ended ended = run([] {
    Workload work{GetParam()};
    in_fork([&] {
      expect_no_device(work);
      expect_no_device(work);
    });
    work.use();
  });
  EXPECT_TRUE(ended.exited_with(0)) << ended;
  EXPECT_TRUE(ended.said(kMessage)) << ended;
  EXPECT_EQ(ended.errors.find(kMessage), ended.errors.rfind(kMessage)) << "once";
}

TEST_P(Fork, ChildUsesOpenClIfTheParentHasNot) {
  expect_well([] {
    cl();  // the loader is there, but nothing has been called
    for (int time = 0; time < 2; ++time) {
      in_fork([] { Workload{GetParam()}.use(); });
    }
    Workload work{GetParam()};
    work.use();
    in_fork([&] { expect_invalid(work); });
    work.use();
  });
}

TEST_P(Fork, GrandchildIsNoBetter) {
  expect_well([] {
    Workload work{GetParam()};
    in_fork([&] {
      expect_invalid(work);
      in_fork([&] {
        expect_invalid(work);
        expect_no_device(work);
      });
    });
    work.use();
  });
}

TEST_P(Fork, WithCommandsAndCallbacksPending) {
  expect_well([] {
    Workload work{GetParam()};
    static std::atomic<int> called{0};
    cl_event user = cl().clCreateUserEvent(work.context, nullptr);
    cl_event event = nullptr;
    work.launch(1, &user, &event);
    cl().clSetEventCallback(
        event, CL_COMPLETE, [](cl_event, cl_int, void*) { ++called; }, nullptr);
    in_fork([&] {
      require(cl().clSetUserEventStatus(user, CL_COMPLETE) == CL_INVALID_EVENT, "the user event isn't the child's");
      require(cl().clWaitForEvents(1, &event) == CL_INVALID_EVENT, "nor the command's");
      require(cl().clReleaseEvent(event) == CL_INVALID_EVENT, "release");
      expect_invalid(work);
    });
    require(called == 0, "the child has not run it");
    require(cl().clSetUserEventStatus(user, CL_COMPLETE) == CL_SUCCESS, "clSetUserEventStatus");
    require(cl().clWaitForEvents(1, &event) == CL_SUCCESS, "clWaitForEvents");
    require(work.read().front() == 1, "it ran once");
    while (called == 0) std::this_thread::yield();
    cl().clReleaseEvent(event);
    cl().clReleaseEvent(user);
  });
}

TEST_P(Fork, ChildBecomesAnotherProgram) {
  expect_well([] {
    Workload work{GetParam()};
    const pid_t child = fork();
    if (child == 0) become({"true"});
    require(ended_well(child), "true ends well");
    require(std::system("exit 0") == 0, "system");
    work.use();
  });
}

TEST_P(Fork, WhileFourThreadsAreInCalls) {
  expect_well([] {
    Workload work{GetParam()};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
      threads.emplace_back([&, number] {
        cl_command_queue queue = cl().clCreateCommandQueue(work.context, work.device, 0, nullptr);
        std::vector<char> data(64);
        while (!stop) {
          cl_mem buffer = cl().clCreateBuffer(work.context, CL_MEM_READ_WRITE, 64, nullptr, nullptr);
          cl_event user = cl().clCreateUserEvent(work.context, nullptr);
          cl().clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, 64, data.data(), 1, &user, nullptr);
          cl().clSetUserEventStatus(user, CL_COMPLETE);
          const cl_int code = cl().clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 64, data.data(), 0, nullptr, nullptr);
          require(code == CL_SUCCESS, "thread " + std::to_string(number));
          cl().clReleaseEvent(user);
          cl().clReleaseMemObject(buffer);
        }
        cl().clReleaseCommandQueue(queue);
      });
    }
    for (int time = 0; time < 20; ++time) {
      in_fork([&] {
        expect_invalid(work);
        expect_no_device(work);
        if (time % 2 == 0) _exit(0);
      });
    }
    stop = true;
    for (auto& thread : threads) thread.join();
    work.use();
  });
}

class ForkReport : public FaultTest {};

TEST_F(ForkReport, IsWrittenByThoseWhoMadeCalls) {
  add_fake();
  const std::filesystem::path report = folder() / "report";
  set("GRUS_REPORT", report);
  const Ended ended = run([] {
    Workload work{kFake};
    in_fork([] {});
    in_fork([&] { cl().clFinish(work.queue); });
    work.use();
  });
  EXPECT_TRUE(ended.exited_with(0)) << ended;
  const std::string text = read(report);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_NE(text.find("\"calls\":{\"clFinish\":1}"), std::string::npos) << "the child's own calls only\n" << text;
}

}  // namespace
}  // namespace grus::test
