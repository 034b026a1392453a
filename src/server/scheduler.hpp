// Who gets a device next, among sessions that share it. Tenants have it in proportion to their weights, by weighted
// fair queueing over the time for which they had it; sessions of one tenant share what is its. Knows nothing of
// processes and clocks: it is told what happened when, and says what is to be done.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace grus::server {

struct TenantTerms {
  static constexpr unsigned kMostWeight = 1000;
  unsigned weight = 1;
  unsigned cap = 100;        // percent of a device's time, at most
  std::uint64_t memory = 0;  // bytes in buffers and images, at most; 0: what the server says for all
};

class Scheduler {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  using Duration = std::chrono::nanoseconds;
  using SessionId = std::uint64_t;
  using Device = std::uint32_t;

  struct Action {
    enum class What : std::uint8_t { grant, keep, ask_when_idle, ask_now, end } what;
    SessionId session;
    Device device;
    friend bool operator==(const Action&, const Action&) = default;
  };
  // Of a tenant, or of a session, on all devices together
  struct Use {
    Duration had{};
    Duration waited{};
    Duration longest_wait{};
  };

  explicit Scheduler(Duration time_limit) : time_limit_{time_limit} {}  // 0: none

  void set_terms(const std::string& tenant, const TenantTerms& terms) { tenants_[tenant].terms = terms; }
  const TenantTerms& terms(const std::string& tenant) { return tenants_[tenant].terms; }
  void forget(const std::string& tenant);  // unless it has a session

  void add(SessionId session, const std::string& tenant);
  void remove(SessionId session, Time now);
  // Both are ignored if they make no sense.
  void ask(SessionId session, Device device, Time now);
  void give_back(SessionId session, Device device, Time now, Duration idle);

  // What is to be done now, once.
  std::vector<Action> decide(Time now);
  // When to ask again if nothing happens before; nothing if there is no need to.
  std::optional<Time> next(Time now) const;

  Use use_of_tenant(const std::string& tenant, Time now) const;
  Use use_of_session(SessionId session, Time now) const;
  std::vector<std::string> tenants() const;
  int sessions_of(const std::string& tenant) const { return tenants_.at(tenant).sessions; }

 private:
  struct Account {
    double time = 0;    // had, divided by the weight: who has the least is next
    double credit = 0;  // ns that are left of a cap
    Time credited{};
    bool is_capped = false;  // until there is some credit again
  };
  struct Tenant {
    TenantTerms terms;
    std::map<Device, Account> accounts;
    Use use;
    int sessions = 0;
  };
  struct Session {
    std::string tenant;
    std::map<Device, double> times;
    Use use;
  };
  struct Shared {
    std::map<SessionId, Time> waiting;  // since when
    SessionId holder = 0;
    Time granted{};
    std::optional<Time> contested;  // since when others want it
    std::optional<Time> recalled;
    bool is_ended = false;  // who has it was told to be
    double time = 0;        // of who was granted it last
  };

  void charge(Shared& shared, Device device, Time now, Duration idle);
  double time_of(const Shared& shared, Device device, SessionId session, Time now) const;
  SessionId best_of(const Shared& shared, Device device) const;
  bool may_have(Device device, SessionId session) const;
  void update_credit(Device device, Shared& shared, Time now);
  Duration time_until_back(const Shared& shared, Device device, Time now) const;

  const Duration time_limit_;
  std::map<std::string, Tenant> tenants_;
  std::map<SessionId, Session> sessions_;
  std::map<Device, Shared> devices_;
};

}  // namespace grus::server
