// The server's side of devices that sessions share: hears the workers, asks the scheduler, and tells them. On a thread
// of its own, so that no lease waits for a process that is started.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>
#include <vector>

#include "channel/descriptor.hpp"
#include "server/counters.hpp"
#include "server/scheduler.hpp"

namespace grus::server {

class Leases {
 public:
  explicit Leases(std::chrono::seconds time_limit);
  ~Leases();
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  using SessionId = Scheduler::SessionId;
  // What the worker wakes it by.
  static channel::Descriptor new_bell();
  void add(SessionId session, const std::string& tenant, SharedCounters page, channel::Descriptor bell);
  void remove(SessionId session);

  void set_terms(const std::string& tenant, const TenantTerms& terms);
  TenantTerms terms(const std::string& tenant);
  void forget_tenant(const std::string& tenant);

  // Sessions that kept a device from others for too long. The descriptor can be read when there are some.
  int greedy() const { return greedy_bell_.get(); }
  std::vector<SessionId> take_greedy();

  nlohmann::ordered_json session_json(SessionId session);
  nlohmann::ordered_json tenants_json();

 private:
  using Clock = Scheduler::Clock;
  struct Held {
    std::uint32_t number = 0;  // of the last lease that was given
    bool is_given = false;
    bool is_asked_for = false;
  };
  struct Worker {
    SharedCounters page;
    channel::Descriptor bell;
    std::array<Held, LeasePage::kDevices> devices{};
  };

  void run();
  void look_at(SessionId session, Worker& worker);
  void carry_out();
  void set_timer() const;

  channel::Descriptor events_;
  channel::Descriptor timer_;
  channel::Descriptor wake_;  // something changed here
  channel::Descriptor greedy_bell_;
  std::mutex mutex_;  // guards what follows
  Scheduler scheduler_;
  std::map<SessionId, Worker> workers_;
  std::vector<SessionId> greedy_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace grus::server
