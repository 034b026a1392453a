// What a worker is told with a client's socket and, with the first one, the page to count in; without a socket, that
// its client seems to come back. And what it asks.
#pragma once

#include "channel/handshake.hpp"

namespace grus::server {

// What the server says about memory: to who asked, or to who is to move something out, or to go.
struct MemoryWord {
  enum class What : std::uint32_t {
    nothing,
    total,
    granted,
    refused,
    move_out,
    made_room,
    step_aside
  } what = What::nothing;
  std::uint32_t device = 0;
  std::uint64_t number = 0;     // of the request
  std::uint64_t bytes = 0;      // that the session may have, in all or on the device
  std::uint64_t swap_left = 0;  // bytes of host memory for what is moved out
  std::uint64_t has_quota = 0;
};

struct Handover {
  channel::Preamble preamble;
  std::uint64_t session = 0;
  std::uint64_t grace = 0;          // seconds
  std::uint64_t is_connection = 0;  // the socket goes to where the worker asked; there is none if nobody is there
  channel::Secret secret{};         // with TLS
  char why_it_ends[256]{};          // the session, at once; empty: it doesn't
  MemoryWord memory{};
  std::uint64_t quota = 0;      // bytes that the tenant may have; 0: as much as there is
  double part = 1;              // of a device's memory, as the client is told
  std::uint64_t moves_out = 0;  // whether buffers are, where a device is full
  channel::Slice slice{};       // of an area whose two descriptors come behind the page; its size is 0 if there is none
};

struct Request {
  // For a connection: workers may only make sockets of their own host's. How much memory a device has, before there is
  // a client. Memory, in all and less of it; room on a device, and that it has given some back; and room for a context,
  // which the driver refuses.
  enum class What : std::uint32_t {
    connection,
    capacity,
    total,
    less,
    room,
    moved_out,
    context
  } what = What::connection;
  std::uint32_t device = 0;
  std::uint64_t number = 0;
  std::uint64_t must = 0;  // it has nothing left that it could move out itself
  std::uint64_t bytes = 0;
  char address[512]{};
  channel::Security security{};  // of the server there, and the session that has been moved to it
  std::uint64_t session = 0;
};

}  // namespace grus::server
