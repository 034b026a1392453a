// Connections over a port between a guest and its host, which is one stream of bytes that never begins or ends. Each
// side has a relay: the guest's takes connections of programs, the host's makes one at the server for each of them.
#pragma once

#include <string>

#include "channel/address.hpp"
#include "channel/area.hpp"

namespace grus::channel {

struct RelayOptions {
  enum class Side { guest, host };
  Side side = Side::guest;
  std::string port;  // the guest's device, or the socket that QEMU offers for it at the host
  Address address;   // where programs come, or of the server
  std::string area;  // the file behind the guest's shared-memory device, at the host; empty: it has none
  std::uint64_t slice = kUsualSlice;  // bytes of it for each session
};

// Until SIGTERM or SIGINT; whatever is lost meanwhile, the port or the server, is tried again. Throws Lost if it can't
// listen, or can't use the area.
void relay(const RelayOptions& options);

}  // namespace grus::channel
