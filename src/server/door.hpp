// The process that lets clients in over TLS. It alone has the server's keys, and strangers get no further: the server
// hands it their sockets, and hears who they are. What comes next needs no keys but the secret that it tells.
#pragma once

#include <array>
#include <cstdint>

#include "channel/keys.hpp"

namespace grus::server {

struct DoorRequest {
  std::uint64_t number = 0;  // with the client's socket
};

struct DoorAnswer {
  std::uint64_t number = 0;
  std::uint64_t is_admitted = 0;
  channel::Secret secret{};
  std::array<char, 512> text{};  // its name, or why it isn't admitted
};

enum class Confined : bool { no, yes };

// Until the server closes the control socket. Returns the exit status.
int run_door(int control, Confined confined);

}  // namespace grus::server
