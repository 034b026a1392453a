// How much memory sessions may have: all of a tenant's together, and of each device's. Who needs room on a device that
// is full gets that of others, whose buffers are moved out. Like the scheduler it knows neither processes nor clocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/scheduler.hpp"

namespace grus::server {

class MemoryShares {
 public:
  using Clock = Scheduler::Clock;
  using Time = Scheduler::Time;
  using SessionId = Scheduler::SessionId;
  using Device = Scheduler::Device;
  using Bytes = std::uint64_t;

  struct Settings {
    Bytes memory = 0;    // of a tenant for whom nothing else is said; 0: as much as there is
    bool parts = false;  // tenants are shown their part of a device's memory
  };
  struct Action {
    enum class What : std::uint8_t { grant, refuse, move_out } what;
    SessionId session;
    Device device;
    Bytes bytes;  // that the session may have there now, or is to have at most
    friend bool operator==(const Action&, const Action&) = default;
  };
  // When a session last used its memory.
  using UsedAt = std::function<Time(SessionId)>;

  explicit MemoryShares(const Settings& settings) : settings_{settings} {}

  void set_terms(const std::string& tenant, const TenantTerms& terms) { tenants_[tenant].terms = terms; }
  TenantTerms terms(const std::string& tenant) { return tenants_[tenant].terms; }
  void forget(const std::string& tenant);  // unless it has a session
  void set_capacity(Device device, Bytes bytes) { devices_.try_emplace(device).first->second.capacity = bytes; }
  bool has_capacity(Device device) const { return devices_.contains(device); }

  void add(SessionId session, const std::string& tenant);
  void remove(SessionId session);

  // What a tenant may have; 0: as much as there is. And its part of a device's memory, for what it is shown.
  Bytes quota_of(const std::string& tenant) const;
  double part_of(const std::string& tenant) const;
  bool has_limits() const;

  // A session wants to have so much, in all. What it may have: no less than before.
  Bytes ask_total(SessionId session, Bytes wanted);
  void return_total(SessionId session, Bytes has);

  // A session needs so much of a device at once. With `must` it has no buffers of its own left to move out.
  // False if the device isn't known.
  bool ask_room(SessionId session, Device device, Bytes wanted, bool must);
  void moved_out(SessionId session, Device device, Bytes left);
  std::vector<Action> decide(Time now, const UsedAt& used_at);
  bool waits() const;  // for somebody who may never answer: decide() has to be asked again though nothing happens

  struct Room {
    Device device;
    Bytes capacity;
    Bytes free;
  };
  std::vector<Room> rooms() const;
  std::vector<std::string> tenants() const;
  int sessions_of(const std::string& tenant) const { return tenants_.at(tenant).sessions; }
  Bytes total_of(const std::string& tenant) const;

 private:
  struct Tenant {
    TenantTerms terms;
    int sessions = 0;
  };
  struct Session {
    std::string tenant;
    Bytes total = 0;                // that it may have
    std::map<Device, Bytes> rooms;  // of those that it has on a device
  };
  struct Request {
    SessionId session;
    Bytes wanted;
    bool must;
    std::set<SessionId> asked{};      // to move something out
    std::set<SessionId> waits_for{};  // those of them who haven't answered yet
    Time asked_at{};                  // the last of them
    std::optional<Time> began{};
  };
  struct OnDevice {
    Bytes capacity = 0;
    std::deque<Request> requests;
  };

  Bytes room_of(SessionId session, Device device) const;
  Bytes free_on(Device device) const;
  Bytes room_of_tenant(const std::string& tenant, Device device) const;
  bool is_over(const std::string& tenant, Device device, Bytes room) const;
  SessionId next_victim(const Request& request, Device device, Time now, const UsedAt& used_at) const;
  std::optional<Action> grant_meanwhile(Device device);
  std::optional<Action> decide_on(Device device, Time now, const UsedAt& used_at);

  const Settings settings_;
  std::map<std::string, Tenant> tenants_;
  std::map<SessionId, Session> sessions_;
  std::map<Device, OnDevice> devices_;
};

}  // namespace grus::server
