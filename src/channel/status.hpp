// What a server says about itself: one JSON document behind its length, in answer to a preamble that asks for it.
#pragma once

#include <string>

#include "channel/address.hpp"

namespace grus::channel {

// Throws Lost.
std::string ask_status(const Address& address);

// The answer, as it is sent.
std::string status_answer(const std::string& document);

}  // namespace grus::channel
