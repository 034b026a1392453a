// What a server says about itself: one JSON document behind its length, in answer to a preamble that asks for it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "channel/address.hpp"

namespace grus::channel {

// Throws Lost.
std::string ask_status(const Address& address);

// What follows a preamble that is to change something: how a tenant shares devices. What is 0 stays as it is.
struct TenantChange {
  std::array<char, 256> tenant{};
  std::uint32_t weight = 0;
  std::uint32_t cap = 0;                                        // percent
  std::uint64_t memory = 0;                                     // bytes
  static constexpr std::uint64_t kNoQuota = ~std::uint64_t{0};  // of its own
};

// What it says about itself then. Throws Lost.
std::string ask_change(const Address& address, const TenantChange& change);

// The answer, as it is sent.
std::string status_answer(const std::string& document);

}  // namespace grus::channel
