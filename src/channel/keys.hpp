// The keys of one side of TLS: who it is, and whose word it takes for who others are. `grus keys` makes them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "channel/address.hpp"

struct ssl_ctx_st;

namespace grus::channel {

inline constexpr std::size_t kShortestToken = 32;

// What clients without a certificate say first, filled up with zeros.
struct Token {
  std::array<char, 512> text{};
  bool operator==(const Token& other) const;  // takes as long for every text
};

// What the two ends of a connection have agreed on where the client was let in, and nobody else knows.
using Secret = std::array<std::uint8_t, 32>;

class Keys {
 public:
  enum class Side { server, client };

  // A server's folder has ca.crt, server.crt, server.key, token if clients may come with that, and the names of those
  // who may not come any more in revoked. A client's has ca.crt and client.crt, client.key; or ca.crt and token. Throws
  // Lost, with what is to be done.
  Keys(Side side, const std::filesystem::path& folder);
  // For a connection whose other end has the same secret. Throws Lost.
  Keys(Side side, const Secret& secret);
  ~Keys();
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  Side side() const { return side_; }
  ssl_ctx_st* context() const { return context_; }
  // What clients may come with; what this client has in place of a certificate.
  const std::optional<Token>& token() const { return token_; }
  const std::optional<Secret>& secret() const { return secret_; }
  bool has_revoked(const std::string& client) const;

 private:
  const Side side_;
  ssl_ctx_st* context_ = nullptr;
  std::optional<Token> token_;
  std::optional<Secret> secret_;
  std::vector<std::string> revoked_;
};

// Where keys are: what GRUS_KEYS names, else a folder of the user's or, for root, the system's. It need not be there.
std::filesystem::path keys_folder();
bool are_keys_named();  // by GRUS_KEYS

// Clients that a server must not let in, by the names in their certificates: a line each in a file of its folder, which
// need not be there. Throws Lost if it can't be read.
inline constexpr const char* kRevoked = "revoked";
std::vector<std::string> revoked_in(const std::filesystem::path& folder);

// What a client needs to get there: null if that is on this host, and no keys are named. Throws Lost.
std::shared_ptr<const Keys> keys_for(const Address& address);

}  // namespace grus::channel
