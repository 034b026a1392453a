// The devices that a session may use, and may know of.
#pragma once

#include <CL/cl.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "command/executor.hpp"

namespace grus::server {

struct OfferedPlatform {
  std::uint32_t index = 0;       // the executor's
  std::vector<cl_uint> devices;  // of it
};
using Offer = std::vector<OfferedPlatform>;  // clients count in this order

// Devices that have one of the texts in their name or in their platform's; all if there is no text. Asks drivers what
// they take long to answer, so that no client has to wait for that.
Offer make_offer(Executor& executor, std::span<const std::string> texts);

}  // namespace grus::server
