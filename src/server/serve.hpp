// `grus serve`: accepts clients and gives each a worker process of its own. One worker is always ready, its drivers
// loaded, so that a new session waits for none of that.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "channel/handshake.hpp"
#include "server/scheduler.hpp"

namespace grus::server {

inline constexpr std::size_t kMostSessions = 1024;

struct ServeOptions {
  struct Place {
    channel::Address address;
    channel::Security security = channel::Security::plain;
  };
  std::vector<Place> listen;
  std::chrono::seconds grace{10};        // for clients that lost their connection
  std::chrono::seconds drain{0};         // for sessions to end by themselves when the server is to end
  std::size_t sessions = kMostSessions;  // at a time, at most
  std::size_t tenant_sessions = kMostSessions;
  std::vector<uid_t> users;  // who may come through a Unix socket, besides this user and root
  bool shared_cache = true;  // what drivers cache is kept for all sessions
  bool direct = true;        // sessions that move to another server send their memory straight there
  std::string audit;         // a file; empty: the log
  std::optional<channel::Address> metrics;
  bool shares = false;                  // sessions get a device's time in turns
  std::chrono::seconds time_limit{60};  // for a command, while others wait; 0: none
  std::map<std::string, TenantTerms> tenants;
  std::uint64_t memory = 0;         // bytes in buffers and images of a tenant, at most; 0: as much as there is
  bool memory_shares = false;       // tenants are shown their part of a device's memory
  std::uint64_t device_memory = 0;  // bytes of each device's that sessions may use; 0: what its driver says
  std::uint64_t swap = 0;           // bytes of host memory for what is moved out of devices; 0: nothing is
  std::vector<std::string> worker;  // the command that becomes one; the number of its control socket is added
  std::vector<std::string> door;    // the same, for what lets clients in over TLS
};

// Until SIGTERM or SIGINT. Throws channel::Lost if it can't listen, std::runtime_error if it can't write its audit
// file.
int serve(const ServeOptions& options);

}  // namespace grus::server
