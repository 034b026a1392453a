// Hold-back: what waits for an unfinished user event stays above the seam, and so does what comes after it by order.
#include "command/hold_back.hpp"

#include <future>

#include "command/gate.hpp"
#include "opencl_fixture.hpp"

namespace grus::test {
namespace {

using namespace std::chrono_literals;

class HoldBackTest : public OpenClTest {
 protected:
  void SetUp() override {
    OpenClTest::SetUp();
    buffer_ = make_buffer(sizeof(cl_int));
    write(queue_, 0, {}, CL_TRUE);
    gate_ = make_user_event();
  }
  void TearDown() override {
    cl().clReleaseEvent(gate_);
    cl().clReleaseMemObject(buffer_);
    OpenClTest::TearDown();
  }

  cl_event write(cl_command_queue queue, cl_int value, std::vector<cl_event> waits, cl_bool blocking = CL_FALSE) {
    values_.push_back(std::make_unique<cl_int>(value));
    cl_event event = nullptr;
    const cl_int code =
        cl().clEnqueueWriteBuffer(queue, buffer_, blocking, 0, sizeof value, values_.back().get(),
                                  static_cast<cl_uint>(waits.size()), waits.empty() ? nullptr : waits.data(), &event);
    EXPECT_EQ(code, CL_SUCCESS);
    return event;
  }
  cl_int read(cl_command_queue queue) {
    cl_int value = -1;
    EXPECT_EQ(cl().clEnqueueReadBuffer(queue, buffer_, CL_TRUE, 0, sizeof value, &value, 0, nullptr, nullptr),
              CL_SUCCESS);
    return value;
  }
  // Whether a command's executor has it, as far as the program can tell.
  static bool is_held(cl_event event) { return slab<Event>().live(event)->place() == Event::Place::above; }
  void open() { EXPECT_EQ(cl().clSetUserEventStatus(gate_, CL_COMPLETE), CL_SUCCESS); }

  cl_mem buffer_ = nullptr;
  cl_event gate_ = nullptr;
  std::vector<std::unique_ptr<cl_int>> values_;
};

TEST_F(HoldBackTest, InOrderSuccessorsWaitAbove) {
  const cl_event first = write(queue_, 1, {gate_});
  const cl_event second = write(queue_, 2, {});
  EXPECT_TRUE(is_held(first));
  EXPECT_TRUE(is_held(second));
  EXPECT_EQ(status_of(second), CL_QUEUED);
  EXPECT_EQ(cl().clFlush(queue_), CL_SUCCESS);  // returns at once
  open();
  EXPECT_FALSE(is_held(second));
  EXPECT_EQ(cl().clFinish(queue_), CL_SUCCESS);
  EXPECT_EQ(read(queue_), 2);
  EXPECT_EQ(status_of(first), CL_COMPLETE);
}

TEST_F(HoldBackTest, WaitersOnOtherQueuesWaitAbove) {
  cl_command_queue other = make_queue(0);
  const cl_event first = write(queue_, 1, {gate_});
  const cl_event second = write(other, 2, {first});
  const cl_event third = write(other, 3, {});
  EXPECT_TRUE(is_held(second));
  EXPECT_TRUE(is_held(third));
  open();
  EXPECT_EQ(cl().clFinish(other), CL_SUCCESS);
  EXPECT_EQ(read(other), 3);
  cl().clReleaseCommandQueue(other);
}

TEST_F(HoldBackTest, OutOfOrderQueuesHoldOnlyWhatDepends) {
  cl_command_queue queue = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  const cl_event held = write(queue, 1, {gate_});
  const cl_event free = write(queue, 2, {});
  EXPECT_TRUE(is_held(held));
  EXPECT_FALSE(is_held(free));
  cl_event marker = nullptr;
  ASSERT_EQ(cl().clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker), CL_SUCCESS);
  EXPECT_TRUE(is_held(marker)) << "a marker waits for everything before it";
  const cl_event after_marker = write(queue, 3, {free});
  EXPECT_FALSE(is_held(after_marker)) << "nothing waits for a marker";
  cl_event barrier = nullptr;
  ASSERT_EQ(cl().clEnqueueBarrierWithWaitList(queue, 0, nullptr, &barrier), CL_SUCCESS);
  const cl_event after_barrier = write(queue, 4, {});
  EXPECT_TRUE(is_held(barrier));
  EXPECT_TRUE(is_held(after_barrier)) << "everything waits for a barrier";
  open();
  EXPECT_EQ(cl().clFinish(queue), CL_SUCCESS);
  EXPECT_EQ(read(queue), 4);
  cl().clReleaseCommandQueue(queue);
}

TEST_F(HoldBackTest, BarrierWithAListHoldsWhatFollows) {
  cl_command_queue queue = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  cl_event barrier = nullptr;
  ASSERT_EQ(cl().clEnqueueBarrierWithWaitList(queue, 1, &gate_, &barrier), CL_SUCCESS);
  const cl_event after = write(queue, 7, {});
  EXPECT_TRUE(is_held(after));
  open();
  EXPECT_EQ(cl().clFinish(queue), CL_SUCCESS);
  EXPECT_EQ(read(queue), 7);
  cl().clReleaseCommandQueue(queue);
}

TEST_F(HoldBackTest, FailurePropagatesToWaitersOnly) {
  const cl_event failing = write(queue_, 1, {gate_});
  const cl_event waiter = write(queue_, 2, {failing});
  const cl_event bystander = write(queue_, 3, {});
  ASSERT_EQ(cl().clSetUserEventStatus(gate_, -42), CL_SUCCESS);
  EXPECT_EQ(cl().clFinish(queue_), CL_SUCCESS);
  EXPECT_EQ(status_of(gate_), -42);
  EXPECT_LT(status_of(failing), 0);
  EXPECT_LT(status_of(waiter), 0);
  EXPECT_EQ(status_of(bystander), CL_COMPLETE);
  EXPECT_EQ(cl().clWaitForEvents(1, &waiter), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
  EXPECT_EQ(read(queue_), 3);
  // A command that waits for an event that has failed already fails too.
  const cl_event late = write(queue_, 4, {gate_});
  EXPECT_LT(status_of(late), 0);
  EXPECT_EQ(read(queue_), 3);
}

TEST_F(HoldBackTest, UserEventsAreSetOnce) {
  open();
  EXPECT_EQ(cl().clSetUserEventStatus(gate_, CL_COMPLETE), CL_INVALID_OPERATION);
  EXPECT_EQ(status_of(gate_), CL_COMPLETE);
}

TEST_F(HoldBackTest, BlockingCallsWaitOutsideTheGate) {
  write(queue_, 5, {gate_});
  auto reader = std::async(std::launch::async, [this] { return read(queue_); });
  // The gate can be closed although a thread is in a call that waits for the user event.
  for (int round = 0; round < 100; ++round) const Gate::Closed closed{g_gate};
  EXPECT_EQ(reader.wait_for(0s), std::future_status::timeout);
  open();
  EXPECT_EQ(reader.get(), 5);
}

TEST_F(HoldBackTest, ReleasingEverythingWhileHeldNeitherBlocksNorLoses) {
  cl_command_queue queue = make_queue(0);
  cl_mem buffer = make_buffer(sizeof(cl_int));
  cl_int value = 77;
  cl_event done = nullptr;
  ASSERT_EQ(cl().clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof value, &value, 1, &gate_, &done), CL_SUCCESS);
  EXPECT_EQ(cl().clEnqueueCopyBuffer(queue, buffer, buffer_, 0, 0, sizeof value, 0, nullptr, nullptr), CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseMemObject(buffer), CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseCommandQueue(queue), CL_SUCCESS);
  open();
  EXPECT_EQ(cl().clWaitForEvents(1, &done), CL_SUCCESS);
  {
    HoldBack::Everything everything{HoldBack::instance()};
    EXPECT_TRUE(everything.drain(std::chrono::steady_clock::now() + 10s)) << "a released queue's work counts too";
  }
  cl_int seen = 0;
  EXPECT_EQ(cl().clEnqueueReadBuffer(queue_, buffer_, CL_TRUE, 0, sizeof seen, &seen, 0, nullptr, nullptr), CL_SUCCESS);
  EXPECT_EQ(seen, 77);
}

TEST_F(HoldBackTest, CallbacksOfHeldCommandsFireOnceWithTheirStatus) {
  std::promise<cl_int> told;
  const cl_event event = write(queue_, 1, {gate_});
  const auto notify = [](cl_event, cl_int status, void* data) {
    static_cast<std::promise<cl_int>*>(data)->set_value(status);
  };
  ASSERT_EQ(cl().clSetEventCallback(event, CL_COMPLETE, notify, &told), CL_SUCCESS);
  auto future = told.get_future();
  EXPECT_EQ(future.wait_for(0s), std::future_status::timeout);
  open();
  EXPECT_EQ(future.get(), CL_COMPLETE);  // set_value a second time would throw
}

TEST_F(HoldBackTest, LaunchesKeepTheArgumentsTheyWereMadeWith) {
  cl_program program = make_program("kernel void set(global int* to, int value) { *to = *to * 10 + value; }");
  cl_kernel kernel = cl().clCreateKernel(program, "set", nullptr);
  ASSERT_NE(kernel, nullptr);
  const std::size_t one = 1;
  cl().clSetKernelArg(kernel, 0, sizeof buffer_, &buffer_);
  for (cl_int value = 1; value <= 4; ++value) {
    cl().clSetKernelArg(kernel, 1, sizeof value, &value);
    const cl_event* waits = value == 1 ? &gate_ : nullptr;
    ASSERT_EQ(cl().clEnqueueNDRangeKernel(queue_, kernel, 1, nullptr, &one, nullptr, waits ? 1 : 0, waits, nullptr),
              CL_SUCCESS);
  }
  const cl_int later = 9;  // set, but not launched with
  cl().clSetKernelArg(kernel, 1, sizeof later, &later);
  EXPECT_EQ(cl().clBuildProgram(program, 0, nullptr, "", nullptr, nullptr), CL_INVALID_OPERATION)
      << "a kernel is attached";
  cl().clReleaseKernel(kernel);
  EXPECT_EQ(cl().clBuildProgram(program, 0, nullptr, "-DREBUILT", nullptr, nullptr), CL_SUCCESS)
      << "launches of the old build that are still held don't stand in the way";
  open();
  EXPECT_EQ(read(queue_), 1234);
  cl().clReleaseProgram(program);
}

TEST_F(HoldBackTest, EverythingIsHeldWhileAskedFor) {
  cl_event event = nullptr;
  {
    HoldBack::Everything everything{HoldBack::instance()};
    ASSERT_TRUE(everything.drain(std::chrono::steady_clock::now() + 10s));
    event = write(queue_, 8, {});
    EXPECT_TRUE(is_held(event));
    EXPECT_EQ(cl().clFlush(queue_), CL_SUCCESS);
  }
  EXPECT_FALSE(is_held(event));
  EXPECT_EQ(read(queue_), 8);
}

// A server answers for the parts of a large read in any order once several threads use it.
TEST_F(HoldBackTest, WhatIsReadIsThereWhenItsEventIsDone) {
  constexpr std::size_t kWords = 4 << 20;
  cl_mem large = make_buffer(kWords * sizeof(cl_int));
  std::vector<cl_int> words(kWords);
  std::async(std::launch::async, [&] { EXPECT_EQ(cl().clFinish(queue_), CL_SUCCESS); }).get();
  for (cl_int round = 1; round <= 60; ++round) {
    cl_event done = nullptr;
    ASSERT_EQ(
        cl().clEnqueueFillBuffer(queue_, large, &round, sizeof round, 0, kWords * sizeof(cl_int), 0, nullptr, nullptr),
        CL_SUCCESS);
    ASSERT_EQ(
        cl().clEnqueueReadBuffer(queue_, large, CL_FALSE, 0, kWords * sizeof(cl_int), words.data(), 0, nullptr, &done),
        CL_SUCCESS);
    ASSERT_EQ(cl().clFlush(queue_), CL_SUCCESS);
    while (status_of(done) > CL_COMPLETE) std::this_thread::yield();
    for (std::size_t word = 0; word < kWords; word += kWords / 64) ASSERT_EQ(words[word], round) << "at " << word;
    cl().clReleaseEvent(done);
  }
  cl().clReleaseMemObject(large);
}

TEST_F(HoldBackTest, DrainGivesUpAtItsDeadline) {
  cl_program program = make_program(
      "kernel void slow(global int* to) { int x = 1; for (long i = 0; i < 1500000000L; ++i) x = x * 3 + i; *to = x; }");
  cl_kernel kernel = cl().clCreateKernel(program, "slow", nullptr);
  cl().clSetKernelArg(kernel, 0, sizeof buffer_, &buffer_);
  const std::size_t one = 1;
  ASSERT_EQ(cl().clEnqueueNDRangeKernel(queue_, kernel, 1, nullptr, &one, nullptr, 0, nullptr, nullptr), CL_SUCCESS);
  cl().clFlush(queue_);
  {
    HoldBack::Everything everything{HoldBack::instance()};
    EXPECT_FALSE(everything.drain(std::chrono::steady_clock::now() + 20ms));
  }
  EXPECT_EQ(cl().clFinish(queue_), CL_SUCCESS);
  cl().clReleaseKernel(kernel);
  cl().clReleaseProgram(program);
}

}  // namespace
}  // namespace grus::test
