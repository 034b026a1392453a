// What may be under way at a shared device, with a driver whose commands take as long as the test says.
#include "executor/turn.hpp"

#include <CL/cl_icd.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace grus {
namespace {

using namespace std::chrono_literals;
using Clock = Turn::Clock;

struct FakeEvent {
  const cl_icd_dispatch* functions;
  Clock::time_point done;
};

struct FakeQueue {
  const cl_icd_dispatch* functions;
  Clock::time_point busy_until{};
  int markers = 0;

  void run(std::chrono::microseconds time) { busy_until = std::max(busy_until, Clock::now()) + time; }
  cl_command_queue handle() { return reinterpret_cast<cl_command_queue>(this); }
};

FakeEvent& event_of(cl_event event) { return *reinterpret_cast<FakeEvent*>(event); }

cl_int CL_API_CALL mark(cl_command_queue queue, cl_uint /*count*/, const cl_event* /*waits*/, cl_event* event) {
  auto& to = *reinterpret_cast<FakeQueue*>(queue);
  ++to.markers;
  *event = reinterpret_cast<cl_event>(new FakeEvent{to.functions, to.busy_until});
  return CL_SUCCESS;
}
cl_int CL_API_CALL flush(cl_command_queue /*queue*/) { return CL_SUCCESS; }
cl_int CL_API_CALL wait_for(cl_uint /*count*/, const cl_event* events) {
  std::this_thread::sleep_until(event_of(*events).done);
  return CL_SUCCESS;
}
cl_int CL_API_CALL describe(cl_event event, cl_event_info /*query*/, size_t size, void* value, size_t* /*needed*/) {
  const cl_int status = Clock::now() >= event_of(event).done ? CL_COMPLETE : CL_RUNNING;
  std::memcpy(value, &status, size);
  return CL_SUCCESS;
}
cl_int CL_API_CALL release(cl_event event) {
  delete &event_of(event);
  return CL_SUCCESS;
}

const cl_icd_dispatch& fake_functions() {
  static const cl_icd_dispatch functions = [] {
    cl_icd_dispatch made{};
    made.clEnqueueMarkerWithWaitList = mark;
    made.clFlush = flush;
    made.clWaitForEvents = wait_for;
    made.clGetEventInfo = describe;
    made.clReleaseEvent = release;
    return made;
  }();
  return functions;
}

class FakeTurn : public Turn {
 public:
  ~FakeTurn() override { stop(); }
  using Turn::is_idle;
  bool is_wanted_now = false;

 private:
  void take() override { open(); }
  bool is_wanted() const override { return is_wanted_now; }
  bool is_recalled() const override { return false; }
};

struct TurnTest : ::testing::Test {
  void send(const Work& work, std::chrono::microseconds time) {
    const Turn::Pass pass{&turn, queue.handle(), work, 0};
    queue.run(time);
  }
  // What is sent and waited for tells how long it takes.
  void teach(const Work& work, std::chrono::microseconds time) {
    const auto start = Clock::now();
    send(work, time);
    std::this_thread::sleep_until(queue.busy_until);
    turn.saw_end_of(queue.handle(), start, turn.sent());
  }
  FakeQueue queue{&fake_functions()};
  FakeTurn turn;
  const Work kernel{Work::kind_of_kernel(1, "kernel"), 1000};
};

TEST_F(TurnTest, NoMarkerComesBeforeWhatItIsFor) {
  {
    const Turn::Pass pass{&turn, queue.handle(), kernel, 0};  // the driver has nothing of it yet
    EXPECT_FALSE(turn.is_idle());
    EXPECT_EQ(queue.markers, 0);
    queue.run(100ms);
  }
  EXPECT_FALSE(turn.is_idle());
  EXPECT_EQ(queue.markers, 1);
  std::this_thread::sleep_until(queue.busy_until);
  EXPECT_TRUE(turn.is_idle());
}

TEST_F(TurnTest, NothingIsBehindWhatWasNotSeenTwice) {
  send(kernel, 100ms);
  EXPECT_FALSE(turn.has_room());
  turn.wait_for_room();
  EXPECT_GE(Clock::now(), queue.busy_until);
  send(kernel, 100ms);
  EXPECT_FALSE(turn.has_room()) << "it may take longer than the first";
}

TEST_F(TurnTest, LongCommandsAreSentOneAtATime) {
  for (int time = 0; time < 3; ++time) {
    send(kernel, 100ms);
    EXPECT_FALSE(turn.has_room());
    turn.wait_for_room();
  }
}

TEST_F(TurnTest, WhileOthersWaitLittleIsUnderWay) {
  turn.is_wanted_now = true;
  for (int time = 0; time < 100; ++time) {
    turn.wait_for_room();
    send(kernel, 1ms);
    EXPECT_LE(queue.busy_until - Clock::now(), 8ms) << time;  // 6 where nothing else runs
  }
}

TEST_F(TurnTest, WhatIsNotKnownBeginsSmall) {
  EXPECT_EQ(turn.first_parts(kernel, 6400), 101U);
  EXPECT_EQ(turn.first_parts(kernel, 1), 1U);
}

TEST_F(TurnTest, PiecesFollowWhatTheyTake) {
  const Work piece{.kind = kernel.kind, .amount = 100, .values = 0, .is_piece = true};
  teach(piece, 40ms);
  const std::size_t fewer = turn.next_parts(piece, 100);
  EXPECT_LE(fewer, 5U);
  EXPECT_GE(fewer, 1U);
  turn.note_whole(kernel, piece, 10);
  EXPECT_LE(turn.first_parts(kernel, 1000), 5U);
  std::size_t more = 0;  // at the latest when the machine has a quiet moment
  for (int time = 0; time < 1000 && more <= 100; ++time) {
    teach(piece, 10us);
    more = turn.next_parts(piece, 100);
  }
  EXPECT_GT(more, 100U);
  EXPECT_LE(more, 400U);
}

// Of a device that runs 400 parts at once, each of which takes 40 ms.
TEST_F(TurnTest, MorePartsAreSentIfTheyTakeNoLonger) {
  const Work whole{kernel.kind, 4000};
  const auto piece = [&](std::size_t parts) {
    return Work{.kind = kernel.kind, .amount = parts, .values = 0, .is_piece = true};
  };
  const auto run = [&](std::size_t parts) { teach(piece(parts), 40ms * ((parts + 399) / 400)); };
  EXPECT_EQ(turn.widened(whole, 5, 50, 4000), 50U) << "nothing is known of them";
  run(50);
  turn.note_whole(whole, piece(50), 80);
  std::size_t parts = turn.widened(whole, 5, 50, 4000);
  EXPECT_EQ(parts, 100U);
  EXPECT_EQ(turn.widened(whole, 40, 50, 4000), 50U) << "nearly as many as were wanted, while others are about";
  for (int time = 0; time < 500 && parts != 800; ++time) {  // at the latest when the machine has a quiet moment
    run(parts);
    parts = turn.widened(whole, 5, 50, 4000);
  }
  EXPECT_EQ(parts, 800U);
  run(parts);
  EXPECT_LE(turn.widened(whole, 5, 50, 4000), 400U) << "more take longer";
}

TEST_F(TurnTest, MorePartsAreTriedThoughSoManyTakeAsLongAsTheyShould) {
  std::this_thread::sleep_for(1100ms);  // alone
  const Work piece{.kind = kernel.kind, .amount = 50, .values = 0, .is_piece = true};
  teach(piece, 80ms);
  turn.note_whole(kernel, piece, 20);
  EXPECT_EQ(turn.next_parts(piece, 50), 50U);
  EXPECT_EQ(turn.widened(kernel, 50, 50, 1000), 100U);
}

TEST_F(TurnTest, NoMorePartsAreTriedOfWhatTakesVeryLong) {
  const Work piece{.kind = kernel.kind, .amount = 50, .values = 0, .is_piece = true};
  teach(piece, 600ms);
  turn.note_whole(kernel, piece, 20);
  EXPECT_EQ(turn.widened(kernel, 5, 50, 1000), 50U);
}

TEST_F(TurnTest, OtherArgumentsMayTakeLonger) {
  const auto with = [this](std::uint64_t values) { return Work{kernel.kind, kernel.amount, values}; };
  for (int time = 0; time < 3; ++time) teach(with(1), 10us);
  EXPECT_EQ(turn.first_parts(with(1), 1000), 1000U);
  EXPECT_LT(turn.first_parts(with(2), 1000), 100U);
  for (std::uint64_t values = 2; values < 40; ++values) teach(with(values), 10us);
  EXPECT_EQ(turn.first_parts(with(40), 1000), 1000U) << "they never did";
  teach(with(40), 100ms);
  EXPECT_LT(turn.first_parts(with(41), 1000), 100U);
  std::this_thread::sleep_for(1100ms);  // alone, when long pieces are best
  EXPECT_LT(turn.first_parts(with(41), 1000), 100U);
}

TEST_F(TurnTest, WhatIsWaitedForIsLearnedThoughAMarkerCameBehindIt) {
  teach(kernel, 5ms);
  const auto start = Clock::now();
  send(kernel, 75ms);
  EXPECT_FALSE(turn.is_idle());
  EXPECT_EQ(queue.markers, 1);
  std::this_thread::sleep_until(queue.busy_until);
  turn.saw_end_of(queue.handle(), start, turn.sent());
  EXPECT_LT(turn.first_parts(kernel, 1000), 1000U);
}

}  // namespace
}  // namespace grus
