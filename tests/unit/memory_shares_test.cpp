// Who gets a device's memory, and who has to give it: made-up sessions on a clock of their own.
#include "server/memory_shares.hpp"

#include <gtest/gtest.h>

namespace grus::server {
namespace {

using namespace std::chrono_literals;
using Action = MemoryShares::Action;
using What = Action::What;

class MemorySharesTest : public testing::Test {
 protected:
  MemorySharesTest() { shares.set_capacity(0, 1000); }

  void add(MemoryShares::SessionId session, const std::string& tenant) { shares.add(session, tenant); }
  std::vector<Action> ask(MemoryShares::SessionId session, std::uint64_t wanted, bool must = false) {
    EXPECT_TRUE(shares.ask_room(session, 0, wanted, must));
    return decide();
  }
  std::vector<Action> decide() {
    return shares.decide(now, [this](MemoryShares::SessionId session) { return used[session]; });
  }
  // Takes it all: what is granted beyond what was asked for differs with what is free.
  void take(MemoryShares::SessionId session, std::uint64_t wanted) {
    ask(session, wanted);
    shares.moved_out(session, 0, wanted);
    used[session] = now;
  }

  MemoryShares shares{{}};
  MemoryShares::Time now{1h};
  std::map<MemoryShares::SessionId, MemoryShares::Time> used;
};

TEST_F(MemorySharesTest, WhatIsFreeIsGranted) {
  add(1, "a");
  const auto all = ask(1, 600);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].what, What::grant);
  EXPECT_GE(all[0].bytes, 600U);
  EXPECT_LE(all[0].bytes, 1000U);
}

TEST_F(MemorySharesTest, ADeviceThatIsNotKnownHasNone) {
  add(1, "a");
  EXPECT_FALSE(shares.ask_room(1, 7, 1, false));
}

TEST_F(MemorySharesTest, WhoUsedItsMemoryLongestAgoGivesFirst) {
  for (const MemoryShares::SessionId session : {1U, 2U, 3U}) {
    add(session, "t" + std::to_string(session));
    take(session, 300);
    now += 10s;
  }
  add(4, "t4");
  EXPECT_EQ(ask(4, 200), (std::vector<Action>{{What::move_out, 1, 0, 200}}));
  EXPECT_TRUE(decide().empty());
  shares.moved_out(1, 0, 200);
  EXPECT_EQ(decide(), (std::vector<Action>{{What::grant, 4, 0, 200}}));
}

TEST_F(MemorySharesTest, WhoHasMoreThanItsPartGivesBeforeOthers) {
  add(1, "modest");
  take(1, 100);
  now += 10s;
  add(2, "greedy");
  take(2, 900);
  add(3, "new");
  EXPECT_EQ(ask(3, 300), (std::vector<Action>{{What::move_out, 2, 0, 600}}));
}

TEST_F(MemorySharesTest, WhoHasMoreThanItsPartTakesNothingFromThoseWhoWork) {
  add(1, "a");
  take(1, 400);
  add(2, "b");
  take(2, 600);
  EXPECT_EQ(ask(2, 700), (std::vector<Action>{{What::refuse, 2, 0, 600}}));
  EXPECT_EQ(ask(2, 700, /*must=*/true), (std::vector<Action>{{What::move_out, 1, 0, 300}}));
}

TEST_F(MemorySharesTest, OthersAreAskedIfOneIsBusy) {
  for (const MemoryShares::SessionId session : {1U, 2U}) {
    add(session, "t" + std::to_string(session));
    take(session, 500);
    now += 10s;
  }
  add(3, "t3");
  EXPECT_EQ(ask(3, 300, /*must=*/true), (std::vector<Action>{{What::move_out, 1, 0, 200}}));
  ASSERT_TRUE(shares.waits());
  now += 3s;
  EXPECT_EQ(decide(), (std::vector<Action>{{What::move_out, 2, 0, 200}}));
  now += 3s;
  EXPECT_TRUE(decide().empty());
  now += 100s;
  EXPECT_EQ(decide(), (std::vector<Action>{{What::refuse, 3, 0, 0}}));
}

TEST_F(MemorySharesTest, WhatSomebodyHadIsFreeOnceTheyAreGone) {
  add(1, "a");
  take(1, 1000);
  add(2, "b");
  EXPECT_EQ(ask(2, 1000).at(0).what, What::move_out);
  shares.remove(1);
  EXPECT_EQ(decide(), (std::vector<Action>{{What::grant, 2, 0, 1000}}));
}

TEST_F(MemorySharesTest, WhoeverAskedFirstIsFirst) {
  add(1, "a");
  take(1, 1000);
  add(2, "b");
  add(3, "c");
  EXPECT_EQ(ask(2, 600), (std::vector<Action>{{What::move_out, 1, 0, 400}}));
  EXPECT_TRUE(ask(3, 100).empty());
  shares.moved_out(1, 0, 300);
  const auto all = decide();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].session, 2U);
  EXPECT_EQ(all[1].session, 3U);
}

TEST_F(MemorySharesTest, WhoNeedsLittleDoesNotWaitForWhoNeedsMuch) {
  for (const char* tenant : {"a", "b", "c", "d"}) add(static_cast<MemoryShares::SessionId>(*tenant), tenant);
  take('a', 700);
  EXPECT_EQ(ask('b', 600), (std::vector<Action>{{What::move_out, 'a', 0, 400}}));
  EXPECT_EQ(ask('c', 100), (std::vector<Action>{{What::grant, 'c', 0, 100}}));
  EXPECT_TRUE(ask('d', 260).empty()) << "more than is free";
  EXPECT_TRUE(ask('c', 300).empty()) << "more than its part";
}

TEST_F(MemorySharesTest, NobodyGivesForWhatCanNotBe) {
  add(1, "a");
  take(1, 500);
  now += 10s;
  add(2, "b");
  EXPECT_EQ(ask(2, 1001, /*must=*/true), (std::vector<Action>{{What::refuse, 2, 0, 0}}));
}

TEST_F(MemorySharesTest, AWorkerThatSaysItHasMoreIsNotBelieved) {
  add(1, "a");
  take(1, 400);
  shares.moved_out(1, 0, 900);
  add(2, "b");
  EXPECT_EQ(ask(2, 600), (std::vector<Action>{{What::grant, 2, 0, 600}}));
}

TEST(MemoryQuotaTest, SessionsOfATenantShareIt) {
  MemoryShares shares{{.memory = 100}};
  shares.add(1, "a");
  shares.add(2, "a");
  shares.add(3, "b");
  EXPECT_EQ(shares.ask_total(1, 60), 60U);
  EXPECT_EQ(shares.ask_total(2, 50), 0U);
  EXPECT_EQ(shares.ask_total(3, 50), 50U);
  EXPECT_EQ(shares.ask_total(2, 40), 40U);
  shares.return_total(1, 20);
  EXPECT_EQ(shares.ask_total(2, 80), 80U);
  shares.remove(2);
  EXPECT_EQ(shares.ask_total(1, 100), 100U);
  EXPECT_EQ(shares.ask_total(1, 101), 100U);
  shares.set_terms("a", {.memory = 200});
  EXPECT_EQ(shares.ask_total(1, 101), 101U);
}

TEST(MemoryQuotaTest, PartsAreByWeightAmongThoseWhoAreThere) {
  MemoryShares shares{{.parts = true}};
  EXPECT_EQ(shares.part_of("a"), 1);
  shares.set_terms("b", {.weight = 3});
  EXPECT_EQ(shares.part_of("a"), 1);
  shares.add(1, "b");
  EXPECT_EQ(shares.part_of("a"), 0.25);
  EXPECT_EQ(shares.part_of("b"), 1);
  shares.add(2, "a");
  EXPECT_EQ(shares.part_of("b"), 0.75);
  shares.remove(1);
  EXPECT_EQ(shares.part_of("a"), 1);
}

}  // namespace
}  // namespace grus::server
