// Holds back, drains, closes the gate and opens it again, over and over, while 8 threads work on shared objects, their
// callbacks call back into OpenCL, and user events are pending. Every result is checked.
#include <atomic>
#include <thread>

#include "command/gate.hpp"
#include "command/hold_back.hpp"
#include "opencl_fixture.hpp"

namespace grus::test {
namespace {

using namespace std::chrono_literals;

constexpr int kThreads = 8;

int cycles_wanted() {
  const char* wanted = std::getenv("GRUS_STRESS_CYCLES");
  return wanted ? std::atoi(wanted) : 3000;
}

class GateStressTest : public OpenClTest {
 protected:
  // What one thread does again and again, on its own in-order queue and on a queue that all share.
  void work(int number);
  void check_chain(cl_command_queue queue, cl_kernel kernel, cl_mem buffer, cl_int start);
  void check_graph(cl_kernel kernel, cl_mem buffer);

  cl_program program_ = nullptr;
  cl_command_queue shared_ = nullptr;  // out of order
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> rounds_{0};
  std::atomic<std::uint64_t> callbacks_wanted_{0};
  std::atomic<std::uint64_t> callbacks_seen_{0};
};

struct CallbackData {
  GateStressTest* test;
  cl_context context;
  cl_command_queue queue;
  std::atomic<std::uint64_t>* seen;
};

void CL_CALLBACK call_back(cl_event event, cl_int status, void* data) {
  auto* mine = static_cast<CallbackData*>(data);
  EXPECT_EQ(status, CL_COMPLETE);
  cl_int now = 1;
  EXPECT_EQ(cl().clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof now, &now, nullptr), CL_SUCCESS);
  EXPECT_EQ(now, CL_COMPLETE);
  cl_mem buffer = cl().clCreateBuffer(mine->context, CL_MEM_READ_WRITE, 64, nullptr, nullptr);
  const cl_int zero = 0;
  EXPECT_EQ(cl().clEnqueueFillBuffer(mine->queue, buffer, &zero, sizeof zero, 0, 64, 0, nullptr, nullptr), CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseMemObject(buffer), CL_SUCCESS);
  mine->seen->fetch_add(1);
  delete mine;
}

// Launches behind a user event, with arguments that change, then a blocking read.
void GateStressTest::check_chain(cl_command_queue queue, cl_kernel kernel, cl_mem buffer, cl_int start) {
  ASSERT_EQ(cl().clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof start, &start, 0, nullptr, nullptr),
            CL_SUCCESS);
  cl_event gate = make_user_event();
  const std::size_t one = 1;
  cl_event last = nullptr;
  ASSERT_EQ(cl().clSetKernelArg(kernel, 0, sizeof buffer, &buffer), CL_SUCCESS);
  for (cl_int add = 1; add <= 4; ++add) {
    ASSERT_EQ(cl().clSetKernelArg(kernel, 1, sizeof add, &add), CL_SUCCESS);
    ASSERT_EQ(cl().clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &one, nullptr, add == 1 ? 1 : 0,
                                          add == 1 ? &gate : nullptr, add == 4 ? &last : nullptr),
              CL_SUCCESS);
  }
  ++callbacks_wanted_;
  auto* data = new CallbackData{this, context_, shared_, &callbacks_seen_};
  ASSERT_EQ(cl().clSetEventCallback(last, CL_COMPLETE, call_back, data), CL_SUCCESS);
  ASSERT_EQ(cl().clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
  cl_int result = 0;
  ASSERT_EQ(cl().clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof result, &result, 0, nullptr, nullptr),
            CL_SUCCESS);
  ASSERT_EQ(result, start + 10);
  cl().clReleaseEvent(gate);
  cl().clReleaseEvent(last);
}

// A small graph on the shared out-of-order queue: two writes, a launch that waits for both, a map of the result.
void GateStressTest::check_graph(cl_kernel kernel, cl_mem buffer) {
  const cl_int base = 100;
  const cl_int add = 11;
  cl_event written = nullptr;
  cl_event launched = nullptr;
  cl_event gate = make_user_event();
  ASSERT_EQ(cl().clEnqueueWriteBuffer(shared_, buffer, CL_FALSE, 0, sizeof base, &base, 0, nullptr, &written),
            CL_SUCCESS);
  const cl_event waits[] = {written, gate};
  const std::size_t one = 1;
  ASSERT_EQ(cl().clSetKernelArg(kernel, 0, sizeof buffer, &buffer), CL_SUCCESS);
  ASSERT_EQ(cl().clSetKernelArg(kernel, 1, sizeof add, &add), CL_SUCCESS);
  ASSERT_EQ(cl().clEnqueueNDRangeKernel(shared_, kernel, 1, nullptr, &one, nullptr, 2, waits, &launched), CL_SUCCESS);
  ASSERT_EQ(cl().clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
  cl_int code = CL_SUCCESS;
  auto* mapped = static_cast<cl_int*>(
      cl().clEnqueueMapBuffer(shared_, buffer, CL_TRUE, CL_MAP_READ, 0, sizeof base, 1, &launched, nullptr, &code));
  ASSERT_EQ(code, CL_SUCCESS);
  ASSERT_EQ(*mapped, 111);
  cl_event unmapped = nullptr;
  ASSERT_EQ(cl().clEnqueueUnmapMemObject(shared_, buffer, mapped, 0, nullptr, &unmapped), CL_SUCCESS);
  ASSERT_EQ(cl().clWaitForEvents(1, &unmapped), CL_SUCCESS);
  for (cl_event event : {written, launched, gate, unmapped}) cl().clReleaseEvent(event);
}

void GateStressTest::work(int number) {
  cl_command_queue queue = make_queue(0);
  cl_mem buffer = make_buffer(64);
  cl_kernel kernel = cl().clCreateKernel(program_, "add", nullptr);
  for (cl_int round = number * 1000; !stop_ && !HasFatalFailure(); ++round) {
    check_chain(queue, kernel, buffer, round);
    if (round % 3 == 0) check_graph(kernel, buffer);
    if (round % 16 == 0) {  // objects come and go
      cl().clReleaseKernel(kernel);
      kernel = cl().clCreateKernel(program_, "add", nullptr);
      cl().clReleaseMemObject(buffer);
      buffer = make_buffer(64);
      cl().clReleaseCommandQueue(queue);
      queue = make_queue(0);
    }
    rounds_.fetch_add(1);
  }
  cl().clReleaseKernel(kernel);
  cl().clReleaseMemObject(buffer);
  cl().clReleaseCommandQueue(queue);
}

TEST_F(GateStressTest, ClosesAndOpensUnderLoad) {
  program_ = make_program("kernel void add(global int* to, int value) { *to += value; }");
  shared_ = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) threads.emplace_back([this, number] { work(number); });

  const int cycles = cycles_wanted();
  int drained = 0;
  for (int cycle = 0; cycle < cycles && !HasFatalFailure(); ++cycle) {
    HoldBack::Everything everything{HoldBack::instance()};
    if (everything.drain(std::chrono::steady_clock::now() + 30s)) ++drained;
    const std::uint64_t before = rounds_.load();
    const Gate::Closed closed{g_gate};
    // With everything drained and the gate closed no thread can finish a round: each needs a result from the device.
    EXPECT_LE(rounds_.load() - before, std::uint64_t{kThreads});
  }
  stop_ = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(drained, cycles);
  cl().clFinish(shared_);
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (callbacks_seen_ < callbacks_wanted_ && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(callbacks_seen_, callbacks_wanted_);
  EXPECT_GT(rounds_, 0U);
  std::printf("%d cycles, %llu rounds of 8 threads, %llu callbacks\n", cycles, static_cast<unsigned long long>(rounds_),
              static_cast<unsigned long long>(callbacks_seen_));
  cl().clReleaseProgram(program_);
  cl().clReleaseCommandQueue(shared_);
}

}  // namespace
}  // namespace grus::test
