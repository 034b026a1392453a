// Staged copies, on PoCL: GRUS_STAGING=always cuts them into chunks of 64 KiB.
#include "executor/staging.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/per_process.hpp"
#include "executor/copy_threads.hpp"
#include "executor/vendor.hpp"

namespace grus {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr const char* kVendor = "/etc/OpenCL/vendors/pocl.icd";

Bytes noise(std::size_t size, unsigned seed) {
  std::mt19937_64 next{seed};
  Bytes bytes(size + 8);
  for (std::size_t at = 0; at < size; at += 8) {
    const auto value = next();
    std::memcpy(&bytes[at], &value, sizeof value);
  }
  bytes.resize(size);
  return bytes;
}

TEST(PinnedRanges, ContainWhatIsInside) {
  PinnedRanges ranges;
  char memory[100] = {};
  EXPECT_FALSE(ranges.contains(memory, 1));
  ranges.add(memory + 20, 40);
  EXPECT_TRUE(ranges.contains(memory + 20, 40));
  EXPECT_TRUE(ranges.contains(memory + 20, 1));
  EXPECT_TRUE(ranges.contains(memory + 59, 1));
  EXPECT_FALSE(ranges.contains(memory + 60, 1));
  EXPECT_FALSE(ranges.contains(memory + 19, 1));
  EXPECT_FALSE(ranges.contains(memory + 19, 41)) << "starts before";
  EXPECT_FALSE(ranges.contains(memory + 21, 40)) << "ends behind";
  EXPECT_FALSE(ranges.contains(memory, 100)) << "is larger on both sides";
  EXPECT_FALSE(ranges.contains(memory + 21, SIZE_MAX)) << "wraps around";
  ranges.remove(memory + 21);
  EXPECT_TRUE(ranges.contains(memory + 20, 40)) << "something else was removed";
  ranges.remove(memory + 20);
  EXPECT_FALSE(ranges.contains(memory + 20, 1));
}

TEST(PinnedRanges, MayOverlap) {
  PinnedRanges ranges;
  char memory[100] = {};
  ranges.add(memory, 80);
  ranges.add(memory + 10, 5);
  ranges.add(memory + 60, 40);
  EXPECT_TRUE(ranges.contains(memory + 12, 50)) << "the nearest range that starts before is too short";
  EXPECT_TRUE(ranges.contains(memory + 70, 30));
  EXPECT_FALSE(ranges.contains(memory + 50, 40)) << "no single range has it all";
  ranges.remove(memory);
  EXPECT_FALSE(ranges.contains(memory + 12, 50));
  EXPECT_TRUE(ranges.contains(memory + 10, 5));
  EXPECT_TRUE(ranges.contains(memory + 60, 40));
}

TEST(PinnedRanges, AreCountedWhereTheyStartTogether) {
  PinnedRanges ranges;
  char memory[100] = {};
  ranges.add(memory, 10);
  ranges.add(memory, 90);
  ranges.add(memory, 10);
  EXPECT_TRUE(ranges.contains(memory, 90));
  ranges.remove(memory);
  EXPECT_FALSE(ranges.contains(memory, 90)) << "which one was meant isn't known";
  EXPECT_TRUE(ranges.contains(memory, 10));
  ranges.remove(memory);
  EXPECT_TRUE(ranges.contains(memory, 10));
  ranges.remove(memory);
  EXPECT_FALSE(ranges.contains(memory, 10));
  ranges.remove(memory);
}

TEST(PinnedRanges, NeighboursAreNotOne) {
  PinnedRanges ranges;
  char memory[100] = {};
  ranges.add(memory, 50);
  ranges.add(memory + 50, 50);
  EXPECT_FALSE(ranges.contains(memory + 40, 20));
}

CopyThreads& four_threads() {
  static CopyThreads* const threads = new CopyThreads{4};  // never destroyed: the threads stay
  return *threads;
}

void copy(CopyThreads& threads, void* to, const void* from, std::size_t size, CopyThreads::Stores stores) {
  CopyThreads::Part part;
  threads.start(part, to, from, size, stores);
  threads.finish(part);
}

TEST(CopyThreads, CopyAnyStretch) {
  const Bytes from = noise(3 * kMiB, 1);
  for (const auto stores : {CopyThreads::Stores::plain, CopyThreads::Stores::streaming}) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}, 64 * kKiB + 1, 2 * kMiB + 77}) {
      for (const std::size_t skew : {0, 1, 17, 63}) {
        Bytes to(size + 128, 0xee);
        copy(four_threads(), to.data() + skew, from.data() + 5, size, stores);
        ASSERT_TRUE(std::equal(from.begin() + 5, from.begin() + 5 + static_cast<std::ptrdiff_t>(size),
                               to.begin() + static_cast<std::ptrdiff_t>(skew)))
            << size << " bytes at " << skew;
        for (std::size_t at = 0; at < skew; ++at) ASSERT_EQ(to[at], 0xee);
        for (std::size_t at = skew + size; at < to.size(); ++at) ASSERT_EQ(to[at], 0xee);
      }
    }
  }
}

TEST(CopyThreads, ServeSeveralAtATime) {
  constexpr int kCallers = 4;
  constexpr int kRounds = 60;
  std::vector<std::thread> callers;
  callers.reserve(kCallers);
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([caller] {
      const Bytes from = noise(kMiB, static_cast<unsigned>(caller));
      for (int round = 0; round < kRounds; ++round) {
        const CopyThreads::Busy busy{four_threads()};
        Bytes to(from.size());
        const std::size_t half = from.size() / 2;
        CopyThreads::Part parts[2];
        four_threads().start(parts[0], to.data(), from.data(), half, CopyThreads::Stores::plain);
        four_threads().start(parts[1], to.data() + half, from.data() + half, half, CopyThreads::Stores::streaming);
        four_threads().finish(parts[round % 2]);  // in either order
        four_threads().finish(parts[1 - round % 2]);
        ASSERT_TRUE(to == from);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// States of the process's threads of that name, as the kernel gives them: R runs, S sleeps.
std::string states_of_threads(const std::string& name) {
  std::string states;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task", error}) {
    std::string text;
    std::getline(std::ifstream{task.path() / "stat"}, text);
    if (text.find('(' + name + ')') != std::string::npos) states += text[text.rfind(')') + 2];
  }
  return states;
}

TEST(CopyThreads, SleepWhenIdle) {
  const Bytes from = noise(kMiB, 2);
  Bytes to(from.size());
  copy(four_threads(), to.data(), from.data(), from.size(), CopyThreads::Stores::plain);
  std::string states;
  do {  // until they all sleep, or the test's time is up
    states = states_of_threads("grus-copy");
  } while (states.find_first_not_of('S') != std::string::npos);
  EXPECT_GE(states.size(), 4U);
}

#ifndef __SANITIZE_THREAD__  // which has no threads in forked children
TEST(CopyThreads, StartOverInAForkedChild) {
  const Bytes from = noise(kMiB, 3);
  Bytes to(from.size());
  copy(of_this_process<CopyThreads>(), to.data(), from.data(), from.size(), CopyThreads::Stores::plain);
  ASSERT_TRUE(to == from);
  const CopyThreads* const here = &of_this_process<CopyThreads>();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (&of_this_process<CopyThreads>() == here) _exit(1);
    Bytes again(from.size());
    copy(of_this_process<CopyThreads>(), again.data(), from.data(), from.size(), CopyThreads::Stores::plain);
    _exit(again == from ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(&of_this_process<CopyThreads>(), here);
}
#endif

enum class Order { in_order, out_of_order };

// A context on PoCL's device, and what the tests make there.
class StagingTest : public testing::TestWithParam<Order> {
 protected:
  static void SetUpTestSuite() {
    setenv("GRUS_STAGING", "always", 1);
    for (const VendorLibrary& library : find_vendor_libraries(kVendor)) {
      if (!vendor_) vendor_ = Vendor::load(library).release();
    }
  }
  static void TearDownTestSuite() { unsetenv("GRUS_STAGING"); }

  void SetUp() override {
    ASSERT_TRUE(vendor_) << "these tests need PoCL (Debian: pocl-opencl-icd)";
    cl_platform_id platform = vendor_->platforms().at(0);
    cl_ = &functions(platform);
    ASSERT_EQ(cl_->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device_, nullptr), CL_SUCCESS);
    cl_int code = CL_SUCCESS;
    context_ = cl_->clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &code);
    ASSERT_EQ(code, CL_SUCCESS);
    queue_ = make_queue();
    staging_ = Staging::for_queue(context_, device_, queue_);
    ASSERT_TRUE(staging_);
  }

  void TearDown() override {
    staging_.reset();
    for (cl_event event : events_) cl_->clReleaseEvent(event);
    for (cl_mem buffer : buffers_) cl_->clReleaseMemObject(buffer);
    for (cl_command_queue queue : queues_) {
      cl_->clFinish(queue);
      cl_->clReleaseCommandQueue(queue);
    }
    if (context_) {
      cl_uint count = 0;
      do {  // until the vendor has let go of all, or the test's time is up because something was not released
        cl_->clGetContextInfo(context_, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, nullptr);
      } while (count != 1);
      cl_->clReleaseContext(context_);
    }
  }

  cl_command_queue make_queue() {
    cl_command_queue_properties properties = CL_QUEUE_PROFILING_ENABLE;
    if (GetParam() == Order::out_of_order) properties |= CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    cl_int code = CL_SUCCESS;
    queues_.push_back(cl_->clCreateCommandQueue(context_, device_, properties, &code));
    EXPECT_EQ(code, CL_SUCCESS);
    return queues_.back();
  }
  cl_mem make_buffer(std::size_t size) {
    cl_int code = CL_SUCCESS;
    buffers_.push_back(cl_->clCreateBuffer(context_, CL_MEM_READ_WRITE, size, nullptr, &code));
    EXPECT_EQ(code, CL_SUCCESS);
    return buffers_.back();
  }
  cl_event make_user_event() {
    cl_int code = CL_SUCCESS;
    events_.push_back(cl_->clCreateUserEvent(context_, &code));
    EXPECT_EQ(code, CL_SUCCESS);
    return events_.back();
  }
  // Fills a buffer once the user event is set; the result tells when that is done.
  cl_event fill_after(cl_event gate, cl_command_queue queue, cl_mem buffer, std::size_t size, unsigned char value) {
    cl_event filled = nullptr;
    EXPECT_EQ(cl_->clEnqueueFillBuffer(queue, buffer, &value, 1, 0, size, 1, &gate, &filled), CL_SUCCESS);
    EXPECT_EQ(cl_->clFlush(queue), CL_SUCCESS);
    events_.push_back(filled);
    return filled;
  }
  Bytes content_of(cl_mem buffer, std::size_t size) {
    Bytes bytes(size);
    EXPECT_EQ(cl_->clEnqueueReadBuffer(queue_, buffer, CL_TRUE, 0, size, bytes.data(), 0, nullptr, nullptr),
              CL_SUCCESS);
    return bytes;
  }
  cl_ulong time_of(cl_event event, cl_profiling_info what) {
    cl_ulong time = 0;
    EXPECT_EQ(cl_->clGetEventProfilingInfo(event, what, sizeof time, &time, nullptr), CL_SUCCESS);
    return time;
  }
  cl_int status_of(cl_event event) {
    cl_int status = CL_QUEUED;
    cl_->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
    return status;
  }

  static Vendor* vendor_;  // PoCL can't be unloaded
  const cl_icd_dispatch* cl_ = nullptr;
  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  std::unique_ptr<Staging> staging_;
  std::vector<cl_command_queue> queues_;
  std::vector<cl_mem> buffers_;
  std::vector<cl_event> events_;
};

Vendor* StagingTest::vendor_ = nullptr;

// Puts other functions in place of the vendor's, for one queue.
class PatchedQueue {
 public:
  explicit PatchedQueue(cl_command_queue queue)
      : functions{grus::functions(queue)}, place_{*reinterpret_cast<const cl_icd_dispatch**>(queue)}, before_{place_} {
    place_ = &functions;
  }
  ~PatchedQueue() { place_ = before_; }
  PatchedQueue(const PatchedQueue&) = delete;
  PatchedQueue& operator=(const PatchedQueue&) = delete;

  cl_icd_dispatch functions;

 private:
  const cl_icd_dispatch*& place_;
  const cl_icd_dispatch* before_;
};

// For the functions that are put there.
cl_event g_to_fail = nullptr;
cl_device_id g_device = nullptr;
int g_flushes_left = 0;

TEST_P(StagingTest, CopiesAnySize) {
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{4095}, 64 * kKiB - 1, 64 * kKiB, 64 * kKiB + 1, 256 * kKiB + 3, 7 * kMiB + 4093}) {
    constexpr std::size_t kOffset = 3;
    SCOPED_TRACE(size);
    ASSERT_TRUE(staging_->wants(size));
    const Bytes from = noise(size, static_cast<unsigned>(size));
    Bytes around(size + 2 * kOffset, 0x55);
    cl_mem buffer = make_buffer(around.size());
    ASSERT_EQ(cl_->clEnqueueWriteBuffer(queue_, buffer, CL_TRUE, 0, around.size(), around.data(), 0, nullptr, nullptr),
              CL_SUCCESS);
    ASSERT_EQ(staging_->write(buffer, kOffset, size, from.data(), {}, nullptr), CL_SUCCESS);
    std::copy(from.begin(), from.end(), around.begin() + kOffset);
    ASSERT_TRUE(content_of(buffer, around.size()) == around);
    Bytes back(size + 2, 0xaa);
    ASSERT_EQ(staging_->read(buffer, kOffset, size, back.data() + 1, {}, nullptr), CL_SUCCESS);
    ASSERT_TRUE(std::equal(from.begin(), from.end(), back.begin() + 1));
    ASSERT_EQ(back.front(), 0xaa);
    ASSERT_EQ(back.back(), 0xaa);
  }
}

TEST_P(StagingTest, GivesEventsOfTheFirstAndTheLastPart) {
  constexpr std::size_t kSize = kMiB + 1;
  cl_mem buffer = make_buffer(kSize);
  Bytes bytes = noise(kSize, 4);
  for (const bool writing : {true, false}) {
    StagedEvents events;
    ASSERT_EQ(writing ? staging_->write(buffer, 0, kSize, bytes.data(), {}, &events)
                      : staging_->read(buffer, 0, kSize, bytes.data(), {}, &events),
              CL_SUCCESS);
    ASSERT_TRUE(events.first);
    ASSERT_TRUE(events.last);
    events_.insert(events_.end(), {events.first, events.last});
    EXPECT_EQ(status_of(events.first), CL_COMPLETE);
    EXPECT_EQ(status_of(events.last), CL_COMPLETE);
    EXPECT_LE(time_of(events.first, CL_PROFILING_COMMAND_START), time_of(events.first, CL_PROFILING_COMMAND_END));
    EXPECT_LE(time_of(events.first, CL_PROFILING_COMMAND_END), time_of(events.last, CL_PROFILING_COMMAND_END));
  }
}

TEST_P(StagingTest, ACopyInOnePartHasOneEvent) {
  cl_mem buffer = make_buffer(kKiB);
  Bytes bytes(kKiB, 1);
  StagedEvents events;
  ASSERT_EQ(staging_->write(buffer, 0, kKiB, bytes.data(), {}, &events), CL_SUCCESS);
  EXPECT_FALSE(events.first);
  ASSERT_TRUE(events.last);
  events_.push_back(events.last);
  EXPECT_EQ(status_of(events.last), CL_COMPLETE);
}

TEST_P(StagingTest, EveryPartOfAReadWaits) {
  constexpr std::size_t kSize = kMiB + 100;
  cl_mem buffer = make_buffer(kSize);
  Bytes bytes = noise(kSize, 5);
  ASSERT_EQ(staging_->write(buffer, 0, kSize, bytes.data(), {}, nullptr), CL_SUCCESS);
  cl_event gate = make_user_event();
  const cl_event filled = fill_after(gate, make_queue(), buffer, kSize, 0x77);
  std::thread opener{[&] { cl_->clSetUserEventStatus(gate, CL_COMPLETE); }};
  EXPECT_EQ(staging_->read(buffer, 0, kSize, bytes.data(), {&filled, 1}, nullptr), CL_SUCCESS);
  opener.join();
  EXPECT_TRUE(bytes == Bytes(kSize, 0x77));
}

TEST_P(StagingTest, EveryPartOfAWriteWaits) {
  constexpr std::size_t kSize = kMiB + 100;
  cl_mem buffer = make_buffer(kSize);
  const Bytes bytes = noise(kSize, 6);
  cl_event gate = make_user_event();
  cl_event waits[] = {fill_after(gate, make_queue(), buffer, kSize, 0x77), gate};
  std::thread opener{[&] { cl_->clSetUserEventStatus(gate, CL_COMPLETE); }};
  StagedEvents events;
  EXPECT_EQ(staging_->write(buffer, 0, kSize, bytes.data(), waits, &events), CL_SUCCESS);
  opener.join();
  events_.insert(events_.end(), {events.first, events.last});
  EXPECT_TRUE(content_of(buffer, kSize) == bytes);
}

// What a copy waits for fails when its first parts have been sent and the first of them is waited for. (PoCL hangs if a
// command waits for an event that has failed already; above the seam, such commands are not let through.)
TEST_P(StagingTest, WhatIsWaitedForMayFail) {
  constexpr std::size_t kSize = kMiB;
  cl_mem buffer = make_buffer(kSize);
  Bytes bytes(kSize, 1);
  ASSERT_EQ(staging_->write(buffer, 0, kSize, bytes.data(), {}, nullptr), CL_SUCCESS);
  for (const bool writing : {true, false}) {
    SCOPED_TRACE(writing ? "write" : "read");
    g_to_fail = make_user_event();
    PatchedQueue patched{queue_};
    patched.functions.clWaitForEvents = [](cl_uint count, const cl_event* events) -> cl_int {
      const auto& vendor = functions(events[0]);
      if (g_to_fail) vendor.clSetUserEventStatus(std::exchange(g_to_fail, nullptr), -1);
      return vendor.clWaitForEvents(count, events);
    };
    const cl_event waits[] = {g_to_fail};
    Bytes others(kSize, 2);
    StagedEvents events;
    EXPECT_EQ(writing ? staging_->write(buffer, 0, kSize, others.data(), waits, &events)
                      : staging_->read(buffer, 0, kSize, others.data(), waits, &events),
              CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    EXPECT_FALSE(events.first);
    EXPECT_FALSE(events.last);
    EXPECT_TRUE(others == Bytes(kSize, 2));
  }
  EXPECT_TRUE(content_of(buffer, kSize) == bytes) << "no part of a write that failed arrives";
}

TEST_P(StagingTest, TheDriverMayFailAtAnyPart) {
  constexpr std::size_t kSize = kMiB;
  constexpr int kParts = 16;
  cl_mem buffer = make_buffer(kSize);
  Bytes bytes(kSize, 1);
  for (int part = 0; part < kParts; ++part) {
    PatchedQueue patched{queue_};
    patched.functions.clFlush = [](cl_command_queue queue) -> cl_int {
      return g_flushes_left-- == 0 ? CL_OUT_OF_RESOURCES : functions(g_device).clFlush(queue);
    };
    g_device = device_;
    g_flushes_left = part;
    StagedEvents events;
    EXPECT_EQ(staging_->write(buffer, 0, kSize, bytes.data(), {}, &events), CL_OUT_OF_RESOURCES);
    g_flushes_left = part;
    EXPECT_EQ(staging_->read(buffer, 0, kSize, bytes.data(), {}, &events), CL_OUT_OF_RESOURCES);
    EXPECT_FALSE(events.first);
    EXPECT_FALSE(events.last);
  }
  EXPECT_EQ(staging_->write(buffer, 0, kSize, bytes.data(), {}, nullptr), CL_SUCCESS) << "the next one works";
}

TEST_P(StagingTest, AnErrorInTheMiddleEndsTheCopy) {
  constexpr std::size_t kSize = kMiB;
  cl_mem buffer = make_buffer(kSize / 2 + 1);  // the parts that are beyond it fail
  Bytes bytes(kSize, 1);
  StagedEvents events;
  EXPECT_EQ(staging_->write(buffer, 0, kSize, bytes.data(), {}, &events), CL_INVALID_VALUE);
  EXPECT_EQ(staging_->read(buffer, 0, kSize, bytes.data(), {}, &events), CL_INVALID_VALUE);
  EXPECT_FALSE(events.first);
  EXPECT_FALSE(events.last);
  EXPECT_EQ(staging_->write(buffer, 0, kSize / 2, bytes.data(), {}, nullptr), CL_SUCCESS) << "the next one works";
}

TEST_P(StagingTest, FourThreadsOnTwoQueues) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 12;
  const auto second = Staging::for_queue(context_, device_, make_queue());
  std::array<cl_mem, kThreads> buffers{};
  for (cl_mem& buffer : buffers) buffer = make_buffer(2 * kMiB);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      Staging& staging = number % 2 == 0 ? *staging_ : *second;
      cl_mem buffer = buffers[static_cast<std::size_t>(number)];
      for (int round = 0; round < kRounds; ++round) {
        const std::size_t size = kMiB + static_cast<std::size_t>(round) * 4099;
        const Bytes from = noise(size, static_cast<unsigned>(100 * number + round));
        Bytes back(size);
        StagedEvents events[2];
        ASSERT_EQ(staging.write(buffer, 1, size, from.data(), {}, &events[0]), CL_SUCCESS);
        ASSERT_EQ(staging.read(buffer, 1, size, back.data(), {&events[0].last, 1}, &events[1]), CL_SUCCESS);
        ASSERT_TRUE(back == from);
        for (const StagedEvents& made : events) {
          if (made.first) cl_->clReleaseEvent(made.first);
          cl_->clReleaseEvent(made.last);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// More copies at a time than there are rings, each of which only goes on when all have begun.
TEST_P(StagingTest, CopiesThatWaitDoNotBlockOthers) {
  constexpr std::size_t kSize = kMiB;
  constexpr std::size_t kThreads = 4;
  std::vector<std::unique_ptr<Staging>> stagings;
  std::vector<cl_mem> buffers;
  std::vector<cl_event> gates;
  for (std::size_t number = 0; number < kThreads; ++number) {
    stagings.push_back(Staging::for_queue(context_, device_, make_queue()));
    buffers.push_back(make_buffer(kSize));
    gates.push_back(make_user_event());
  }
  std::barrier all_begin{kThreads};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (std::size_t number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      const Bytes bytes(kSize, static_cast<unsigned char>(number));
      all_begin.arrive_and_wait();
      // The last has nothing to wait for, and lets the one before it go on when it is done; and so on.
      const bool is_last = number + 1 == kThreads;
      const std::span<const cl_event> waits{&gates[number], is_last ? 0U : 1U};
      EXPECT_EQ(stagings[number]->write(buffers[number], 0, kSize, bytes.data(), waits, nullptr), CL_SUCCESS);
      if (number > 0) cl_->clSetUserEventStatus(gates[number - 1], CL_COMPLETE);
    });
  }
  for (std::thread& thread : threads) thread.join();
  cl_->clSetUserEventStatus(gates[kThreads - 1], CL_COMPLETE);
  for (std::size_t number = 0; number < kThreads; ++number) {
    EXPECT_TRUE(content_of(buffers[number], kSize) == Bytes(kSize, static_cast<unsigned char>(number)));
  }
}

TEST_P(StagingTest, IsOnlyForDevicesWithTheirOwnMemory) {
  setenv("GRUS_STAGING", "off", 1);
  EXPECT_FALSE(Staging::for_queue(context_, device_, queue_));
  unsetenv("GRUS_STAGING");
  EXPECT_FALSE(Staging::for_queue(context_, device_, queue_)) << "this one is the CPU";
  setenv("GRUS_STAGING", "always", 1);
  EXPECT_TRUE(Staging::for_queue(context_, device_, queue_));
}

INSTANTIATE_TEST_SUITE_P(Queues, StagingTest, testing::Values(Order::in_order, Order::out_of_order),
                         [](const auto& tested) {
                           return tested.param == Order::in_order ? "in_order" : "out_of_order";
                         });

}  // namespace
}  // namespace grus
