// What a worker is told with a client's socket and, with the first one, the page to count in. Without a socket, that
// its client seems to come back.
#pragma once

#include "channel/handshake.hpp"

namespace grus::server {

struct Handover {
  channel::Preamble preamble;
  std::uint64_t session = 0;
  std::uint64_t grace = 0;   // seconds
  channel::Secret secret{};  // with TLS
};

}  // namespace grus::server
