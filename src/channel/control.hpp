// How the `grus` command talks to a program that runs under Grus: lines of text over a socket of the session's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "channel/address.hpp"

namespace grus::channel {

class Line {
 public:
  explicit Line(Descriptor socket) : socket_{std::move(socket)} {}

  void send(const std::string& text);    // a peer that is gone is no error: is_closed() tells
  std::optional<std::string> receive();  // nothing when the peer is gone
  bool is_closed();

 private:
  Descriptor socket_;
  std::string received_;
};

std::string session_socket(pid_t pid);
std::vector<pid_t> sessions_of_this_user();  // those that listen; sockets of others are removed

}  // namespace grus::channel
