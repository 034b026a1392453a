// What a worker is told with a client's socket and, with the first one, the page to count in; without a socket, that
// its client seems to come back. And what it asks.
#pragma once

#include "channel/handshake.hpp"

namespace grus::server {

struct Handover {
  channel::Preamble preamble;
  std::uint64_t session = 0;
  std::uint64_t grace = 0;          // seconds
  std::uint64_t is_connection = 0;  // the socket goes to where the worker asked; there is none if nobody is there
  channel::Secret secret{};         // with TLS
  char why_it_ends[256]{};          // the session, at once; empty: it doesn't
  channel::Slice slice{};  // of an area whose two descriptors come behind the page; its size is 0 if there is none
};

// Workers may only make sockets of their own host's.
struct Connect {
  char address[512];
};

}  // namespace grus::server
