// The process that lets clients in over TLS. It alone has the server's keys, and strangers get no further: the server
// hands it their sockets, and hears who they are. What comes next needs no keys but the secret that it tells. Whoever
// only asks the server something is answered here, too: the server itself waits for nobody.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "channel/descriptor.hpp"
#include "channel/keys.hpp"

namespace grus::server {

// With a client's socket: to let it in, or with a file behind it, to tell it what that holds.
struct DoorRequest {
  std::uint64_t number = 0;
  channel::Secret secret{};  // of one that was let in
};

struct DoorAnswer {
  std::uint64_t number = 0;
  std::uint64_t is_admitted = 0;
  channel::Secret secret{};
  std::array<char, 512> text{};  // its name, or why it isn't admitted
};

// The server's side of an answer to a client that was let in; false if it can't be given.
bool tell_by_door(int control, const channel::Descriptor& client, const channel::Secret& secret,
                  std::string_view answer);

enum class Confined : bool { no, yes };

// Until the server closes the control socket. Returns the exit status.
int run_door(int control, Confined confined);

}  // namespace grus::server
