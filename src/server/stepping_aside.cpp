#include "server/stepping_aside.hpp"

#include <algorithm>

namespace grus::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 200ms;          // without a command in between, a session is idle
constexpr auto kPatience = 2s;         // until there is one
constexpr auto kPatienceToLeave = 5s;  // for it to be gone: what it has is copied
constexpr int kMostWants = 16;         // of one session: who creates contexts without end drives no more out

}  // namespace

void SteppingAside::want(SessionId who, Time now) {
  if (std::any_of(wants_.begin(), wants_.end(), [&](const Want& want) { return want.who == who; })) return;
  const bool is_greedy = ++wanted_[who] > kMostWants;
  wants_.push_back({who, is_greedy ? Time{} : now});  // nobody is idle at the first look, and it has waited long enough
}

void SteppingAside::remove(SessionId session) {
  wanted_.erase(session);
  std::erase_if(wants_, [&](const Want& want) { return want.who == session; });
  for (Want& want : wants_) want.is_granted = want.is_granted || want.asked == session;
}

SteppingAside::SessionId SteppingAside::idle_one(const Want& want, std::span<const Look> sessions) const {
  const Look* best = nullptr;
  for (const Look& look : sessions) {
    const bool is_asked = std::any_of(wants_.begin(), wants_.end(), [&](const Want& other) {
      return other.asked == look.session || other.who == look.session;
    });
    const auto before = want.seen.find(look.session);
    const bool is_idle = before != want.seen.end() && before->second == look.commands;
    if (is_asked || !is_idle || want.tried.contains(look.session)) continue;
    if (!best || look.used_at < best->used_at) best = &look;
  }
  return best ? best->session : 0;
}

std::vector<SteppingAside::Action> SteppingAside::decide(Time now, std::span<const Look> sessions) {
  std::vector<Action> actions;
  for (Want& want : wants_) {
    if (want.is_granted) {
      actions.push_back({Action::What::grant, want.who});
      continue;
    }
    if (want.asked != 0) {
      if (now - want.asked_at < kPatienceToLeave) continue;
      want.tried.insert(want.asked);
      want.asked = 0;
    }
    if (now - want.looked < kLook) continue;
    if (const SessionId idle = idle_one(want, sessions); idle != 0) {
      want.asked = idle;
      want.asked_at = now;
      actions.push_back({Action::What::ask, idle});
    } else if (now - want.since >= kPatience) {
      actions.push_back({Action::What::refuse, want.who});
    }
    want.looked = now;
    want.seen.clear();
    for (const Look& look : sessions) want.seen.emplace(look.session, look.commands);
  }
  std::erase_if(wants_, [&](const Want& want) {
    return std::any_of(actions.begin(), actions.end(), [&](const Action& action) {
      return action.session == want.who && action.what != Action::What::ask;
    });
  });
  return actions;
}

}  // namespace grus::server
