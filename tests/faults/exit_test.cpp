// Programs that end without releasing anything: their own exit status, no hang, no crash.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "faults/support/folders.hpp"
#include "faults/support/opencl.hpp"

namespace grus::test {
namespace {

constexpr int kStatus = 7;

struct Case {
  const char* name;
  const char* platform;
  const char* fake;  // what the fake driver is told
  void (*leave)();
};

void leave_by_exit() { std::exit(kStatus); }
void leave_by_quick_exit() { std::quick_exit(kStatus); }
void leave_at_once() { _exit(kStatus); }

class Exit : public FaultTest, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    GetParam().platform == std::string{kPocl} ? add_pocl() : add_fake();
    misbehave(GetParam().fake);
  }
  static void leave() { GetParam().leave(); }
  static bool finishes() { return GetParam().fake != std::string{"hold"}; }
  // The body gets objects that nobody releases.
  void expect_status(const std::function<void(Workload&)>& body) const {
    const Ended ended = run([&] {
      auto* work = new Workload{GetParam().platform};
      if (finishes()) work->warm_up();
      body(*work);
      require(false, "it should have ended");
    });
    EXPECT_TRUE(ended.exited_with(kStatus)) << ended;
    EXPECT_EQ(ended.errors, "");
  }
};

INSTANTIATE_TEST_SUITE_P(By, Exit,
                         ::testing::Values(Case{"ExitOnPocl", kPocl, "", leave_by_exit},
                                           Case{"QuickExitOnPocl", kPocl, "", leave_by_quick_exit},
                                           Case{"UnderscoreExitOnPocl", kPocl, "", leave_at_once},
                                           Case{"ExitOnFake", kFake, "", leave_by_exit},
                                           Case{"ExitOnFakeThatNeverFinishes", kFake, "hold", leave_by_exit}),
                         [](const auto& test) { return test.param.name; });

TEST_P(Exit, WithCommandsInFlight) {
  expect_status([](Workload& work) {
    for (int time = 0; time < 3; ++time) work.launch_long();
    work.launch();
    cl().clFlush(work.queue);
    leave();
  });
}

TEST_P(Exit, WithUserEventsAndCallbacksPending) {
  expect_status([](Workload& work) {
    work.launch_long();
    cl_event user = cl().clCreateUserEvent(work.context, nullptr);
    cl_event held = nullptr;
    work.launch(1, &user, &held);
    const auto never = [](cl_event, cl_int, void*) { require(false, "nothing has completed"); };
    cl().clSetEventCallback(user, CL_COMPLETE, never, nullptr);
    cl().clSetEventCallback(held, CL_COMPLETE, never, nullptr);
    leave();
  });
}

TEST_P(Exit, WithABufferMapped) {
  expect_status([](Workload& work) {
    cl_int code = CL_SUCCESS;
    cl().clEnqueueMapBuffer(work.queue, work.buffer, CL_FALSE, CL_MAP_WRITE, 0, 64, 0, nullptr, nullptr, &code);
    require(code == CL_SUCCESS, "clEnqueueMapBuffer");
    leave();
  });
}

TEST_P(Exit, FromAThreadWhileOthersRun) {
  expect_status([](Workload& work) {
    const auto run_on = [&] {
      cl_command_queue queue = cl().clCreateCommandQueue(work.context, work.device, 0, nullptr);
      cl_kernel kernel = cl().clCreateKernel(work.program, "increment", nullptr);
      cl().clSetKernelArg(kernel, 0, sizeof work.buffer, &work.buffer);
      for (;;) {
        cl().clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &Workload::kItems, nullptr, 0, nullptr, nullptr);
        cl().clFinish(queue);
        cl().clReleaseMemObject(cl().clCreateBuffer(work.context, CL_MEM_READ_WRITE, 64, nullptr, nullptr));
      }
    };
    for (int number = 0; number < 3; ++number) std::thread{run_on}.detach();
    std::thread{[&] {
      for (int time = 0; time < 100; ++time) work.launch();
      leave();
    }}.join();
  });
}

TEST_P(Exit, WhileThreadsWait) {
  expect_status([](Workload& work) {
    cl_event user = cl().clCreateUserEvent(work.context, nullptr);
    cl_event held = nullptr;
    work.launch(1, &user, &held);
    std::thread{[&] { cl().clFinish(work.queue); }}.detach();
    std::thread{[&] { cl().clWaitForEvents(1, &held); }}.detach();
    std::thread{[&] { work.read(); }}.detach();
    std::this_thread::yield();
    leave();
  });
}

TEST_P(Exit, InACallback) {
  expect_status([](Workload& work) {
    cl_event user = cl().clCreateUserEvent(work.context, nullptr);
    cl().clSetEventCallback(
        user, CL_COMPLETE, [](cl_event, cl_int, void*) { leave(); }, nullptr);
    work.launch();
    cl().clSetUserEventStatus(user, CL_COMPLETE);
    cl_event never = cl().clCreateUserEvent(work.context, nullptr);
    cl().clWaitForEvents(1, &never);
  });
}

TEST_P(Exit, InACallbackOfTheDrivers) {
  if (!finishes()) GTEST_SKIP() << "it never completes anything";
  expect_status([](Workload& work) {
    cl_event event = nullptr;
    work.launch(0, nullptr, &event);
    cl().clSetEventCallback(
        event, CL_COMPLETE, [](cl_event, cl_int, void*) { leave(); }, nullptr);
    cl().clFlush(work.queue);
    cl_event never = cl().clCreateUserEvent(work.context, nullptr);
    cl().clWaitForEvents(1, &never);
  });
}

Workload* g_work = nullptr;

TEST_P(Exit, WithAnExitHandlerThatReleases) {
  expect_status([](Workload& work) {
    g_work = &work;
    std::atexit([] { delete g_work; });
    work.launch();
    leave();
  });
}

// The program was there first, so its handler runs last, when the drivers' own have run.
TEST_P(Exit, WithAnExitHandlerFromBeforeTheFirstCall) {
  const Ended ended = run([] {
    std::atexit([] {
      cl_uint count = 0;
      cl().clGetPlatformIDs(0, nullptr, &count);
      cl_event user = cl().clCreateUserEvent(g_work->context, nullptr);
      cl().clSetUserEventStatus(user, CL_COMPLETE);
      cl().clReleaseEvent(user);
      cl().clRetainContext(g_work->context);
    });
    g_work = new Workload{GetParam().platform};
    if (finishes()) g_work->warm_up();
    g_work->launch();
    leave();
  });
  EXPECT_TRUE(ended.exited_with(kStatus)) << ended;
  EXPECT_EQ(ended.errors, "");
}

TEST_P(Exit, LeavesAReport) {
  if (GetParam().leave != leave_by_exit) GTEST_SKIP() << "no exit handlers run";
  set("GRUS_REPORT", folder() / "report");
  expect_status([](Workload& work) {
    work.launch();
    leave();
  });
  const std::string report = read(folder() / "report");
  EXPECT_NE(report.find("\"clSetKernelArg\":"), std::string::npos) << report;
  EXPECT_NE(report.find("\"kernel\":{\"created\":2,\"live\":2}"), std::string::npos) << report;
}

}  // namespace
}  // namespace grus::test
