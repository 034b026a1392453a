// A driver that refuses another context has no room for it. Then a session that does nothing is asked to step aside:
// its client takes everything into its own memory, and comes back once it has something to do. Like the scheduler this
// knows neither processes nor clocks.
#pragma once

#include <map>
#include <set>
#include <span>
#include <vector>

#include "server/scheduler.hpp"

namespace grus::server {

class SteppingAside {
 public:
  using Time = Scheduler::Time;
  using SessionId = Scheduler::SessionId;

  struct Look {
    SessionId session;
    std::uint64_t commands;  // so far: one that has no more of them does nothing
    Time used_at;            // its memory
  };
  struct Action {
    enum class What : std::uint8_t { ask, grant, refuse } what;
    SessionId session;
    friend bool operator==(const Action&, const Action&) = default;
  };

  void want(SessionId who, Time now);  // refused at once to who wants too often
  void remove(SessionId session);      // it has ended
  // Of those that have a context.
  std::vector<Action> decide(Time now, std::span<const Look> sessions);
  bool waits() const { return !wants_.empty(); }

 private:
  struct Want {
    SessionId who;
    Time since;
    std::map<SessionId, std::uint64_t> seen{};  // commands, at the last look
    Time looked{};
    SessionId asked = 0;
    Time asked_at{};
    bool is_granted = false;
    std::set<SessionId> tried{};  // those who didn't go
  };

  SessionId idle_one(const Want& want, std::span<const Look> sessions) const;

  std::vector<Want> wants_;
  std::map<SessionId, int> wanted_;  // how often
};

}  // namespace grus::server
