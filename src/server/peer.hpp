// Who is at the other end of a client's socket.
#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "channel/descriptor.hpp"

namespace grus::server {

struct Peer {
  std::optional<uid_t> user;  // on this host, as the kernel says
  pid_t process = 0;
  std::string program;
  std::string address;  // elsewhere
  std::string name;     // with TLS, by its certificate

  std::string text() const;  // for people
  nlohmann::ordered_json json() const;
};

Peer peer_of(const channel::Descriptor& socket);

}  // namespace grus::server
