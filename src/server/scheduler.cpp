#include "server/scheduler.hpp"

#include <algorithm>
#include <tuple>

namespace grus::server {
namespace {

using namespace std::chrono_literals;

// That a session keeps a device for if others want it, at least. They wait for a slice of 10 ms: for this, and for what
// is under way then, which is little unless kernels are long and can't be split.
constexpr Scheduler::Duration kKept = 4ms;
constexpr double kCarried = 20e6;  // ns that who had nothing to do for a moment may be behind others
constexpr double kMostCredit = 20e6;
constexpr Scheduler::Duration kMostIdle = 20ms;  // that a worker may say it had nothing to do for

double nanoseconds(Scheduler::Duration duration) { return static_cast<double>(duration.count()); }

Scheduler::Duration duration(double nanoseconds) { return Scheduler::Duration{static_cast<std::int64_t>(nanoseconds)}; }

}  // namespace

void Scheduler::add(SessionId session, const std::string& tenant) {
  sessions_[session].tenant = tenant;
  ++tenants_[tenant].sessions;
}

void Scheduler::remove(SessionId session, Time now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  for (auto& [device, shared] : devices_) {
    if (shared.holder == session) charge(shared, device, now, {});
    shared.waiting.erase(session);
  }
  --tenants_[found->second.tenant].sessions;
  sessions_.erase(found);
}

void Scheduler::forget(const std::string& tenant) {
  const auto found = tenants_.find(tenant);
  if (found != tenants_.end() && found->second.sessions == 0) tenants_.erase(found);
}

void Scheduler::ask(SessionId id, Device device, Time now) {
  const auto found = sessions_.find(id);
  Shared& shared = devices_[device];
  if (found == sessions_.end() || shared.holder == id || shared.waiting.contains(id)) return;
  Session& session = found->second;
  Account& account = tenants_[session.tenant].accounts[device];
  const auto is_of_tenant = [&](SessionId other) { return other != 0 && sessions_.at(other).tenant == session.tenant; };
  bool is_active = is_of_tenant(shared.holder);
  double& own = session.times[device];
  double least = own;  // of the tenant's other sessions
  for (const auto& [other, since] : shared.waiting) {
    if (!is_of_tenant(other)) continue;
    least = is_active ? std::min(least, sessions_.at(other).times[device]) : sessions_.at(other).times[device];
    is_active = true;
  }
  // Who had nothing to do has no right to what the others had meanwhile.
  if (!is_active) account.time = std::max(account.time, shared.time - kCarried);
  own = std::max(own, least - kCarried);
  shared.waiting.emplace(id, now);
}

void Scheduler::give_back(SessionId session, Device device, Time now, Duration idle) {
  const auto shared = devices_.find(device);
  if (shared == devices_.end() || shared->second.holder != session) return;
  charge(shared->second, device, now, idle);
}

// What it had while nobody else wanted it costs nothing.
void Scheduler::charge(Shared& shared, Device device, Time now, Duration idle) {
  Session& session = sessions_.at(shared.holder);
  Tenant& tenant = tenants_.at(session.tenant);
  update_credit(device, shared, now);
  if (shared.contested) {
    const double contested = nanoseconds(now - std::max(shared.granted, *shared.contested));
    tenant.accounts[device].time += contested / tenant.terms.weight;
    session.times[device] += contested;
  }
  const Duration held = now - shared.granted;
  const Duration had = held - std::min({idle, held, kMostIdle});
  tenant.use.had += had;
  session.use.had += had;
  shared.holder = 0;
  shared.contested.reset();
  shared.recalled.reset();
  shared.is_ended = false;
}

bool Scheduler::may_have(Device device, SessionId session) const {
  const auto& accounts = tenants_.at(sessions_.at(session).tenant).accounts;
  const auto account = accounts.find(device);
  return account == accounts.end() || !account->second.is_capped;
}

// By whom is next: the tenant that had least, of it the session, and of those who had as much whoever waits longest.
Scheduler::SessionId Scheduler::best_of(const Shared& shared, Device device) const {
  SessionId best = 0;
  std::tuple<double, double, Time> least{};
  for (const auto& [id, since] : shared.waiting) {
    if (!may_have(device, id)) continue;
    const Session& session = sessions_.at(id);
    const std::tuple<double, double, Time> order{tenants_.at(session.tenant).accounts.at(device).time,
                                                 session.times.at(device), since};
    if (best != 0 && order >= least) continue;
    best = id;
    least = order;
  }
  return best;
}

// A cap is a credit that grows as fast as it says, and is used while a session has the device.
void Scheduler::update_credit(Device device, Shared& shared, Time now) {
  for (auto& [name, tenant] : tenants_) {
    const auto found = tenant.accounts.find(device);
    if (found == tenant.accounts.end()) continue;
    Account& account = found->second;
    const double passed = account.credited == Time{} ? 0 : nanoseconds(now - account.credited);
    account.credited = now;
    if (tenant.terms.cap >= 100) {
      account.is_capped = false;
      account.credit = 0;
      continue;
    }
    const bool holds = shared.holder != 0 && sessions_.at(shared.holder).tenant == name;
    account.credit += passed * (tenant.terms.cap / 100.0 - (holds ? 1 : 0));
    account.credit = std::min(account.credit, kMostCredit);
    if (account.credit <= 0 && holds) account.is_capped = true;
    if (account.credit >= nanoseconds(kKept)) account.is_capped = false;
  }
}

// For how long who has it may keep it, though others wait; none of them is `best` if that is 0.
Scheduler::Duration Scheduler::time_until_back(const Shared& shared, Device device, Time now) const {
  const SessionId best = best_of(shared, device);
  if (best == 0) return Duration::max();
  const Session& holder = sessions_.at(shared.holder);
  const Session& next = sessions_.at(best);
  const double since = shared.contested ? nanoseconds(now - std::max(shared.granted, *shared.contested)) : 0;
  double behind = 0;
  if (holder.tenant == next.tenant) {
    behind = next.times.at(device) - holder.times.at(device) - since;
  } else {
    const Tenant& own = tenants_.at(holder.tenant);
    const double weight = own.terms.weight;
    behind = (tenants_.at(next.tenant).accounts.at(device).time - own.accounts.at(device).time) * weight - since;
  }
  return std::max(shared.granted + kKept - now, duration(std::min(behind, 1e15)));
}

std::vector<Scheduler::Action> Scheduler::decide(Time now) {
  using What = Action::What;
  std::vector<Action> actions;
  for (auto& [device, shared] : devices_) {
    update_credit(device, shared, now);
    if (shared.holder == 0) {
      const SessionId best = best_of(shared, device);
      if (best == 0) continue;
      Session& session = sessions_.at(best);
      Tenant& tenant = tenants_.at(session.tenant);
      const Duration waited = now - shared.waiting.at(best);
      for (Use* const use : {&session.use, &tenant.use}) {
        use->waited += waited;
        use->longest_wait = std::max(use->longest_wait, waited);
      }
      shared.waiting.erase(best);
      shared.holder = best;
      shared.granted = now;
      shared.time = std::max(shared.time, tenant.accounts.at(device).time);
      actions.push_back({What::grant, best, device});
    }
    const bool is_wanted = best_of(shared, device) != 0;
    if (is_wanted && !shared.contested) {
      shared.contested = now;
      if (!shared.recalled) actions.push_back({What::ask_when_idle, shared.holder, device});
    } else if (!is_wanted && shared.contested && !shared.recalled) {
      shared.contested.reset();
      actions.push_back({What::keep, shared.holder, device});
    }
    const bool is_over = is_wanted ? time_until_back(shared, device, now) <= 0ns : false;
    if (!shared.recalled && (is_over || !may_have(device, shared.holder))) {
      shared.recalled = now;
      actions.push_back({What::ask_now, shared.holder, device});
    }
    if (shared.recalled && is_wanted && !shared.is_ended && time_limit_ != 0ns &&
        now - std::max(*shared.recalled, *shared.contested) >= time_limit_) {
      shared.is_ended = true;
      actions.push_back({What::end, shared.holder, device});
    }
  }
  return actions;
}

std::optional<Scheduler::Time> Scheduler::next(Time now) const {
  std::optional<Time> first;
  const auto by = [&](Time time) { first = first ? std::min(*first, time) : time; };
  for (const auto& [device, shared] : devices_) {
    for (const auto& [name, tenant] : tenants_) {
      const auto account = tenant.accounts.find(device);
      if (tenant.terms.cap >= 100 || account == tenant.accounts.end()) continue;
      const double cap = std::max(tenant.terms.cap, 1U) / 100.0;
      const bool holds = shared.holder != 0 && sessions_.at(shared.holder).tenant == name;
      const double credit = account->second.credit;
      if (holds && !shared.recalled) by(now + duration(std::max(credit, 0.0) / (1 - cap)));
      if (account->second.is_capped) by(now + duration((nanoseconds(kKept) - credit) / cap));
    }
    if (shared.holder == 0 || !shared.contested) continue;
    if (!shared.recalled) {
      by(now + std::min(time_until_back(shared, device, now), Duration{1h}));
    } else if (time_limit_ != 0ns && !shared.is_ended) {
      by(std::max(*shared.recalled, *shared.contested) + time_limit_);
    }
  }
  return first;
}

Scheduler::Use Scheduler::use_of_tenant(const std::string& name, Time now) const {
  Use use = tenants_.at(name).use;
  for (const auto& [device, shared] : devices_) {
    if (shared.holder != 0 && sessions_.at(shared.holder).tenant == name) use.had += now - shared.granted;
  }
  return use;
}

Scheduler::Use Scheduler::use_of_session(SessionId session, Time now) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return {};
  Use use = found->second.use;
  for (const auto& [device, shared] : devices_) {
    if (shared.holder == session) use.had += now - shared.granted;
    if (const auto waits = shared.waiting.find(session); waits != shared.waiting.end())
      use.waited += now - waits->second;
  }
  return use;
}

std::vector<std::string> Scheduler::tenants() const {
  std::vector<std::string> names;
  for (const auto& [name, tenant] : tenants_) names.push_back(name);
  return names;
}

}  // namespace grus::server
