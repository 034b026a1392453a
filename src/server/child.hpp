// A process that the server starts, and a socket to it on which descriptors can be passed.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "channel/descriptor.hpp"

namespace grus::server {

struct Child {
  pid_t process = 0;
  channel::Descriptor control;
};

// The number of its end of the socket is added to the command. Nothing if it can't be started; the log says why.
std::optional<Child> start_child(const std::vector<std::string>& command, const sigset_t& signals);

}  // namespace grus::server
