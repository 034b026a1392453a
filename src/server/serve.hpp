// `grus serve`: accepts clients and gives each a worker process of its own. One worker is always ready, its drivers
// loaded, so that a new session waits for none of that.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "channel/handshake.hpp"

namespace grus::server {

struct ServeOptions {
  struct Place {
    channel::Address address;
    channel::Security security = channel::Security::plain;
  };
  std::vector<Place> listen;
  std::chrono::seconds grace{10};   // for clients that lost their connection
  std::vector<std::string> worker;  // the command that becomes one; the number of its control socket is added
};

// Until SIGTERM or SIGINT. Throws channel::Lost if it can't listen.
int serve(const ServeOptions& options);

}  // namespace grus::server
