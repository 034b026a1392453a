// How the `grus` command talks to a program that runs under Grus: lines of text over a socket of the session's.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "channel/address.hpp"

namespace grus::channel {

class Line {
 public:
  // With a limit, whoever says nothing for so long is taken for gone.
  explicit Line(Descriptor socket, std::optional<std::chrono::milliseconds> limit = {})
      : socket_{std::move(socket)}, limit_{limit} {}

  void send(const std::string& text);    // a peer that is gone is no error: is_closed() tells
  std::optional<std::string> receive();  // nothing when the peer is gone
  bool is_closed();

 private:
  Descriptor socket_;
  std::optional<std::chrono::milliseconds> limit_;
  std::string received_;
};

std::string session_socket(pid_t pid);
std::vector<pid_t> sessions_of_this_user();  // those that listen; sockets of others are removed

}  // namespace grus::channel
