// The keys of one side of TLS: who it is, and whose word it takes for who others are. `grus keys` makes them.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "channel/address.hpp"

struct ssl_ctx_st;

namespace grus::channel {

inline constexpr std::size_t kShortestToken = 32;

// What clients without a certificate say first, filled up with zeros.
struct Token {
  std::array<char, 512> text{};
  bool operator==(const Token& other) const;  // takes as long for every text
};

class Keys {
 public:
  // A sender and a receiver of pages are servers, too: the one shows a ticket in place of a certificate.
  enum class Side { server, client, sender, receiver };

  // A server's folder has ca.crt, server.crt, server.key, and token if clients may come with that. A client's has
  // ca.crt and client.crt, client.key; or ca.crt and token. Throws Lost, with what is to be done.
  Keys(Side side, const std::filesystem::path& folder);
  ~Keys();
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  bool is_accepting() const { return side_ == Side::server || side_ == Side::receiver; }
  ssl_ctx_st* context() const { return context_; }
  // What clients may come with; what this client has in place of a certificate.
  const std::optional<Token>& token() const { return token_; }

 private:
  const Side side_;
  ssl_ctx_st* context_ = nullptr;
  std::optional<Token> token_;
};

// Where keys are: what GRUS_KEYS names, else a folder of the user's or, for root, the system's. It need not be there.
std::filesystem::path keys_folder();
bool are_keys_named();  // by GRUS_KEYS

// What a client needs to get there: null if that is on this host, and no keys are named. Throws Lost.
std::shared_ptr<const Keys> keys_for(const Address& address);

}  // namespace grus::channel
