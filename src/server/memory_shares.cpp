#include "server/memory_shares.hpp"

#include <algorithm>

namespace grus::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kIdle = 1s;          // who hasn't used its memory for so long can spare it
constexpr auto kBusy = 2s;          // who hasn't moved anything out by then is busy; others are asked as well
constexpr auto kLongestWait = 65s;  // of who can't go on without
constexpr MemoryShares::Bytes kMostSpare = MemoryShares::Bytes{256}
                                           << 20;  // more than was asked for, where there is much

}  // namespace

void MemoryShares::forget(const std::string& tenant) {
  const auto found = tenants_.find(tenant);
  if (found != tenants_.end() && found->second.sessions == 0) tenants_.erase(found);
}

void MemoryShares::add(SessionId session, const std::string& tenant) {
  sessions_[session].tenant = tenant;
  ++tenants_[tenant].sessions;
}

void MemoryShares::remove(SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  --tenants_[found->second.tenant].sessions;
  sessions_.erase(found);
  for (auto& [device, on] : devices_) {
    std::erase_if(on.requests, [&](const Request& request) { return request.session == session; });
    for (Request& request : on.requests) request.waits_for.erase(session);
  }
}

MemoryShares::Bytes MemoryShares::quota_of(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found != tenants_.end() && found->second.terms.memory != 0 ? found->second.terms.memory : settings_.memory;
}

double MemoryShares::part_of(const std::string& tenant) const {
  if (!settings_.parts) return 1;
  double own = 1;
  double all = 0;
  for (const auto& [name, one] : tenants_) {
    if (name == tenant) own = one.terms.weight;
    if (name != tenant && one.sessions != 0) all += one.terms.weight;
  }
  return own / (all + own);
}

bool MemoryShares::has_limits() const {
  return settings_.memory != 0 || settings_.parts ||
         std::any_of(tenants_.begin(), tenants_.end(), [](const auto& one) { return one.second.terms.memory != 0; });
}

MemoryShares::Bytes MemoryShares::total_of(const std::string& tenant) const {
  Bytes all = 0;
  for (const auto& [id, session] : sessions_) all += session.tenant == tenant ? session.total : 0;
  return all;
}

MemoryShares::Bytes MemoryShares::ask_total(SessionId id, Bytes wanted) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return 0;
  Session& session = found->second;
  if (wanted <= session.total) return session.total;
  const Bytes quota = quota_of(session.tenant);
  const Bytes others = total_of(session.tenant) - session.total;
  if (quota == 0 || (others <= quota && wanted <= quota - others)) session.total = wanted;
  return session.total;
}

void MemoryShares::return_total(SessionId id, Bytes has) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) found->second.total = std::min(found->second.total, has);
}

MemoryShares::Bytes MemoryShares::room_of(SessionId session, Device device) const {
  const auto& rooms = sessions_.at(session).rooms;
  const auto found = rooms.find(device);
  return found == rooms.end() ? 0 : found->second;
}

MemoryShares::Bytes MemoryShares::room_of_tenant(const std::string& tenant, Device device) const {
  Bytes all = 0;
  for (const auto& [id, session] : sessions_) all += session.tenant == tenant ? room_of(id, device) : 0;
  return all;
}

MemoryShares::Bytes MemoryShares::free_on(Device device) const {
  const Bytes capacity = devices_.at(device).capacity;
  Bytes taken = 0;
  for (const auto& [id, session] : sessions_) taken += room_of(id, device);
  return capacity - std::min(capacity, taken);
}

// Whether a tenant would have more than its part with so much.
bool MemoryShares::is_over(const std::string& tenant, Device device, Bytes room) const {
  double all = 0;
  for (const auto& [name, one] : tenants_) all += one.sessions != 0 ? one.terms.weight : 0;
  const double part = static_cast<double>(devices_.at(device).capacity) * tenants_.at(tenant).terms.weight / all;
  return static_cast<double>(room) > part;
}

bool MemoryShares::ask_room(SessionId session, Device device, Bytes wanted, bool must) {
  const auto on = devices_.find(device);
  if (on == devices_.end() || !sessions_.contains(session)) return false;
  // A worker has one at a time.
  std::erase_if(on->second.requests, [&](const Request& request) { return request.session == session; });
  on->second.requests.push_back({session, wanted, must});
  return true;
}

void MemoryShares::moved_out(SessionId session, Device device, Bytes left) {
  const auto found = sessions_.find(session);
  const auto on = devices_.find(device);
  if (found == sessions_.end() || on == devices_.end()) return;
  if (left < room_of(session, device)) found->second.rooms[device] = left;
  for (Request& request : on->second.requests) request.waits_for.erase(session);
}

// Those who have more than their part first, and of them who hasn't used its memory for longest. Who has more than its
// part itself takes nothing from those who work with theirs, unless it can't go on without.
MemoryShares::SessionId MemoryShares::next_victim(const Request& request, Device device, Time now,
                                                  const UsedAt& used_at) const {
  const std::string& asker = sessions_.at(request.session).tenant;
  const Bytes more = request.wanted - room_of(request.session, device);
  const bool is_greedy = is_over(asker, device, room_of_tenant(asker, device) + more);
  SessionId best = 0;
  bool best_is_over = false;
  Time best_used{};
  for (const auto& [id, session] : sessions_) {
    if (id == request.session || request.asked.contains(id) || room_of(id, device) == 0) continue;
    const bool over =
        session.tenant != asker && is_over(session.tenant, device, room_of_tenant(session.tenant, device));
    const Time used = used_at(id);
    const bool may = over || request.must || used + kIdle < now || (!is_greedy && session.tenant != asker);
    if (!may) continue;
    if (best == 0 || over > best_is_over || (over == best_is_over && used < best_used)) {
      best = id;
      best_is_over = over;
      best_used = used;
    }
  }
  return best;
}

// While the first waits for others to make room: who needs no more than is free, and no more than its part.
std::optional<MemoryShares::Action> MemoryShares::grant_meanwhile(Device device) {
  auto& requests = devices_.at(device).requests;
  for (auto request = std::next(requests.begin()); request != requests.end(); ++request) {
    Session& session = sessions_.at(request->session);
    Bytes& room = session.rooms[device];
    const Bytes more = request->wanted - std::min(request->wanted, room);
    if (more > free_on(device) || is_over(session.tenant, device, room_of_tenant(session.tenant, device) + more))
      continue;
    room += more;
    const Action action{Action::What::grant, request->session, device, room};
    requests.erase(request);
    return action;
  }
  return std::nullopt;
}

std::optional<MemoryShares::Action> MemoryShares::decide_on(Device device, Time now, const UsedAt& used_at) {
  using What = Action::What;
  auto& requests = devices_.at(device).requests;
  if (requests.empty()) return std::nullopt;
  Request& request = requests.front();
  Bytes& room = sessions_.at(request.session).rooms[device];
  const Bytes free = free_on(device);
  const Bytes more = request.wanted - std::min(request.wanted, room);
  if (more <= free) {
    room += more + (requests.size() == 1 ? std::min(kMostSpare, (free - more) / 8) : 0);
    const Action action{What::grant, request.session, device, room};
    requests.pop_front();
    return action;
  }
  if (request.wanted > devices_.at(device).capacity) {  // nobody could make room for that
    const Action action{What::refuse, request.session, device, room};
    requests.pop_front();
    return action;
  }
  if (!request.began) request.began = now;
  if (!request.waits_for.empty() && now < request.asked_at + kBusy) return grant_meanwhile(device);
  if (const SessionId victim = next_victim(request, device, now, used_at); victim != 0) {
    request.asked.insert(victim);
    request.waits_for.insert(victim);
    request.asked_at = now;
    const Bytes its = room_of(victim, device);
    return Action{What::move_out, victim, device, its - std::min(its, more - free)};
  }
  if (request.must && !request.waits_for.empty() && now < *request.began + kLongestWait) return grant_meanwhile(device);
  const Action action{What::refuse, request.session, device, room};
  requests.pop_front();
  return action;
}

std::vector<MemoryShares::Action> MemoryShares::decide(Time now, const UsedAt& used_at) {
  std::vector<Action> all;
  for (const auto& [device, on] : devices_) {
    while (const auto action = decide_on(device, now, used_at)) {
      all.push_back(*action);
      if (action->what == Action::What::move_out) break;
    }
  }
  return all;
}

bool MemoryShares::waits() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const auto& entry) {
    const auto& requests = entry.second.requests;
    return !requests.empty() && !requests.front().waits_for.empty();
  });
}

std::vector<MemoryShares::Room> MemoryShares::rooms() const {
  std::vector<Room> all;
  for (const auto& [device, on] : devices_) all.push_back({device, on.capacity, free_on(device)});
  return all;
}

std::vector<std::string> MemoryShares::tenants() const {
  std::vector<std::string> names;
  for (const auto& [name, tenant] : tenants_) names.push_back(name);
  return names;
}

}  // namespace grus::server
