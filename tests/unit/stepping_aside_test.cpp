// Who is asked to step aside when a driver refuses another context.
#include "server/stepping_aside.hpp"

#include <gtest/gtest.h>

namespace grus::server {
namespace {

using namespace std::chrono_literals;
using Action = SteppingAside::Action;
using What = Action::What;
using Actions = std::vector<Action>;

struct SteppingAsideTest : ::testing::Test {
  Actions after(std::chrono::milliseconds more) {
    now += more;
    return aside.decide(now, sessions);
  }
  SteppingAside aside;
  SteppingAside::Time now{1h};
  std::vector<SteppingAside::Look> sessions{{1, 10, now - 1s}, {2, 20, now - 2s}, {3, 30, now - 3s}};
};

TEST_F(SteppingAsideTest, TheOneThatWasIdleLongestGoes) {
  aside.want(9, now);
  EXPECT_EQ(after(0ms), Actions{}) << "nobody is known to be idle yet";
  sessions[2].commands = 31;
  EXPECT_EQ(after(200ms), (Actions{{What::ask, 2}}));
  EXPECT_EQ(after(1s), Actions{});
  sessions.erase(sessions.begin() + 1);
  aside.remove(2);
  EXPECT_EQ(after(0ms), (Actions{{What::grant, 9}}));
  EXPECT_FALSE(aside.waits());
}

TEST_F(SteppingAsideTest, WhoDoesNotGoIsAskedOnce) {
  aside.want(9, now);
  (void)after(0ms);
  EXPECT_EQ(after(200ms), (Actions{{What::ask, 3}}));
  EXPECT_EQ(after(5s), (Actions{{What::ask, 2}}));
  EXPECT_EQ(after(5s), (Actions{{What::ask, 1}}));
  EXPECT_EQ(after(5s), (Actions{{What::refuse, 9}}));
  EXPECT_FALSE(aside.waits());
}

TEST_F(SteppingAsideTest, BusySessionsStay) {
  aside.want(9, now);
  for (int look = 0; look < 10; ++look) {
    for (auto& session : sessions) ++session.commands;
    EXPECT_EQ(after(200ms), look == 9 ? (Actions{{What::refuse, 9}}) : Actions{}) << look;
  }
}

TEST_F(SteppingAsideTest, WhoWantsWithoutEndIsRefused) {
  for (int time = 0; time < 16; ++time) {
    aside.want(9, now);
    EXPECT_EQ(after(200ms), Actions{});
    EXPECT_EQ(after(200ms), (Actions{{What::ask, 3}}));
    aside.remove(3);
    EXPECT_EQ(after(0ms), (Actions{{What::grant, 9}}));
  }
  aside.want(9, now);
  EXPECT_EQ(after(200ms), (Actions{{What::refuse, 9}}));
  aside.want(8, now);
  EXPECT_EQ(after(200ms), Actions{}) << "others may";
}

TEST_F(SteppingAsideTest, EachWhoWantsAsksAnother) {
  aside.want(8, now);
  aside.want(9, now);
  (void)after(0ms);
  EXPECT_EQ(after(200ms), (Actions{{What::ask, 3}, {What::ask, 2}}));
  aside.remove(9);
  aside.remove(2);
  EXPECT_EQ(after(0ms), Actions{});
  aside.remove(3);
  EXPECT_EQ(after(0ms), (Actions{{What::grant, 8}}));
}

}  // namespace
}  // namespace grus::server
