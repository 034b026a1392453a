// Who has a device when: made-up sessions on a clock of their own.
#include "server/scheduler.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace grus::server {
namespace {

using namespace std::chrono_literals;
using Duration = Scheduler::Duration;
using What = Scheduler::Action::What;

// Sessions that always have work, in commands of one length; a few of them are under way when it has to go back.
struct Simulation {
  struct Client {
    Duration command;
    Duration had{};
    Duration longest_wait{};
    Scheduler::Time asked{};
  };
  explicit Simulation(Duration limit = 0ns) : scheduler{limit} {}

  void add(Scheduler::SessionId id, const std::string& tenant, Duration command) {
    scheduler.add(id, tenant);
    clients[id] = {command};
    ask(id);
  }
  void ask(Scheduler::SessionId id) {
    clients[id].asked = now;
    scheduler.ask(id, 0, now);
  }
  void carry_out(const Scheduler::Action& action) {
    Client& client = clients.at(action.session);
    if (action.what == What::grant) {
      holder = action.session;
      granted = now;
      client.longest_wait = std::max(client.longest_wait, Duration{now - client.asked});
    } else if (action.what == What::ask_now) {
      // What runs is finished.
      const auto ran = now - granted;
      returns = granted + (ran / client.command + 1) * client.command;
    } else if (action.what == What::end) {
      ended.push_back(action.session);
      remove(action.session);
      has_room = true;
    }
  }
  void remove(Scheduler::SessionId id) {
    scheduler.remove(id, now);
    clients.erase(id);
    if (holder != id) return;
    holder = 0;
    returns.reset();
  }
  void run_for(Duration time) {
    const auto until = now + time;
    while (now < until) {
      for (const auto& action : scheduler.decide(now)) carry_out(action);
      auto next = scheduler.next(now).value_or(until);
      if (std::exchange(has_room, false)) next = now;
      if (returns) next = std::min(next, *returns);
      now = std::max(now + 1us, std::min(next, until));
      if (!returns || now < *returns) continue;
      returns.reset();
      Client& client = clients.at(holder);
      client.had += now - granted;
      const auto id = std::exchange(holder, 0);
      scheduler.give_back(id, 0, now, 0ns);
      ask(id);
    }
  }
  double share(Scheduler::SessionId id) {
    double all = 0;
    for (const auto& [other, client] : clients) all += static_cast<double>(client.had.count());
    return 100 * static_cast<double>(clients.at(id).had.count()) / all;
  }

  Scheduler scheduler;
  Scheduler::Time now{1s};
  std::map<Scheduler::SessionId, Client> clients;
  Scheduler::SessionId holder = 0;
  Scheduler::Time granted{};
  std::optional<Scheduler::Time> returns;
  std::vector<Scheduler::SessionId> ended;
  bool has_room = false;  // since somebody ended
};

TEST(SchedulerTest, EqualTenantsHaveHalfEach) {
  for (const auto& [one, other] :
       {std::pair<Duration, Duration>{10us, 10us}, {10us, 70ms}, {1ms, 300ms}, {7ms, 11ms}, {200ms, 300ms}}) {
    Simulation simulation;
    simulation.add(1, "a", one);
    simulation.add(2, "b", other);
    simulation.run_for(100 * std::max(one, other) + 2s);
    EXPECT_NEAR(simulation.share(1), 50, 1) << one.count() << " " << other.count();
  }
}

TEST(SchedulerTest, WeightsAreShares) {
  Simulation simulation;
  simulation.scheduler.set_terms("b", {.weight = 3});
  simulation.add(1, "a", 20ms);
  simulation.add(2, "b", 100us);
  simulation.run_for(10s);
  EXPECT_NEAR(simulation.share(1), 25, 1);
}

TEST(SchedulerTest, SessionsShareWhatIsTheirTenants) {
  Simulation simulation;
  simulation.add(1, "a", 1ms);
  for (Scheduler::SessionId id = 2; id < 5; ++id) simulation.add(id, "b", Duration{1ms} * id);
  simulation.run_for(10s);
  EXPECT_NEAR(simulation.share(1), 50, 1);
  for (Scheduler::SessionId id = 2; id < 5; ++id) EXPECT_NEAR(simulation.share(id), 50.0 / 3, 1);
}

TEST(SchedulerTest, EightTenantsHaveAnEighthEach) {
  Simulation simulation;
  for (Scheduler::SessionId id = 1; id <= 8; ++id) simulation.add(id, std::to_string(id), Duration{1ms} * id * id);
  simulation.run_for(30s);
  for (Scheduler::SessionId id = 1; id <= 8; ++id) EXPECT_NEAR(simulation.share(id), 12.5, 0.5);
}

TEST(SchedulerTest, WhoIsAloneKeepsIt) {
  Simulation simulation;
  simulation.add(1, "a", 1ms);
  simulation.run_for(1h);
  EXPECT_EQ(simulation.clients.at(1).had, 0ns);  // it was never given back
  EXPECT_EQ(simulation.holder, 1U);
  EXPECT_EQ(simulation.scheduler.next(simulation.now), std::nullopt);
  EXPECT_EQ(simulation.scheduler.use_of_tenant("a", simulation.now).had, 1h);
}

TEST(SchedulerTest, ANewcomerWaitsForOneCommand) {
  Simulation simulation;
  simulation.add(1, "a", 300ms);
  simulation.run_for(10s);
  simulation.add(2, "b", 1ms);
  simulation.run_for(1s);
  EXPECT_LE(simulation.clients.at(2).longest_wait, 300ms);
}

// What it didn't use while it was away it doesn't get later.
TEST(SchedulerTest, NobodySavesUp) {
  Simulation simulation;
  simulation.add(1, "a", 1ms);
  simulation.add(2, "b", 1ms);
  simulation.run_for(100ms);
  simulation.remove(2);
  simulation.run_for(10s);
  simulation.add(3, "b", 1ms);
  simulation.run_for(1s);
  EXPECT_NEAR(static_cast<double>(simulation.clients.at(3).had.count()) / 1e9 * 100, 50, 3);
}

TEST(SchedulerTest, ACapHoldsThoughNobodyElseWantsIt) {
  for (const Duration command : {Duration{100us}, Duration{3ms}, Duration{80ms}}) {
    Simulation simulation;
    simulation.scheduler.set_terms("a", {.cap = 20});
    simulation.add(1, "a", command);
    simulation.run_for(20s);
    EXPECT_NEAR(static_cast<double>(simulation.clients.at(1).had.count()) / 20e9 * 100, 20, 1) << command.count();
  }
}

TEST(SchedulerTest, WhatACapLeavesIsForOthers) {
  Simulation simulation;
  simulation.scheduler.set_terms("a", {.cap = 10});
  simulation.add(1, "a", 1ms);
  simulation.add(2, "b", 1ms);
  simulation.run_for(20s);
  EXPECT_NEAR(simulation.share(1), 10, 1);
}

TEST(SchedulerTest, GreedEndsOnlyIfOthersWait) {
  Simulation simulation{2s};
  simulation.add(1, "a", 24h);
  simulation.run_for(1h);
  EXPECT_TRUE(simulation.ended.empty());
  const auto came = simulation.now;
  simulation.add(2, "b", 1ms);
  simulation.run_for(3s);
  EXPECT_EQ(simulation.ended, std::vector<Scheduler::SessionId>{1});
  EXPECT_EQ(simulation.holder, 2U);
  EXPECT_GE(simulation.clients.at(2).longest_wait, 2s);
  EXPECT_LE(simulation.granted, came + 2100ms);
}

TEST(SchedulerTest, DevicesAreSharedApart) {
  Scheduler scheduler{0ns};
  const Scheduler::Time now{1s};
  scheduler.add(1, "a");
  scheduler.add(2, "b");
  scheduler.ask(1, 0, now);
  scheduler.ask(2, 1, now);
  const std::vector<Scheduler::Action> both = {{What::grant, 1, 0}, {What::grant, 2, 1}};
  EXPECT_EQ(scheduler.decide(now), both);
}

TEST(SchedulerTest, WhatMakesNoSenseIsIgnored) {
  Scheduler scheduler{0ns};
  const Scheduler::Time now{1s};
  scheduler.ask(7, 0, now);  // nobody
  scheduler.add(1, "a");
  scheduler.give_back(1, 0, now, 0ns);
  scheduler.ask(1, 0, now);
  scheduler.ask(1, 0, now);
  scheduler.give_back(1, 0, now, 0ns);
  const std::vector<Scheduler::Action> one = {{What::grant, 1, 0}};
  EXPECT_EQ(scheduler.decide(now), one);
  scheduler.ask(1, 0, now);
  EXPECT_TRUE(scheduler.decide(now).empty());
  scheduler.remove(7, now);
  scheduler.remove(1, now);
  EXPECT_TRUE(scheduler.decide(now).empty());
}

}  // namespace
}  // namespace grus::server
