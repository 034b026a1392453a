// A small certificate authority, and what it makes for servers and clients.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>
#include <vector>

namespace grus::cli {

// A certificate and its key, as they are written to files (PEM).
struct Identity {
  std::string certificate;
  std::string key;
};

class Authority {
 public:
  Authority();                                   // a new one; throws Problem
  explicit Authority(const Identity& identity);  // one that was made before; throws Problem

  Identity identity() const;
  // Hosts are names, or addresses in figures.
  Identity make_server(const std::vector<std::string>& hosts, int days) const;
  Identity make_client(const std::string& name, int days) const;

 private:
  using Certificate = std::unique_ptr<X509, void (*)(X509*)>;
  using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
  struct Extension {
    int kind;
    std::string value;
  };

  Certificate make(const std::string& name, EVP_PKEY* key, int days, const std::vector<Extension>& extensions) const;
  Identity make_identity(const std::string& name, int days, std::vector<Extension> extensions) const;

  Key key_;
  Certificate certificate_;
};

// Whether a certificate can name it.
bool is_host(const std::string& text);

// A secret for clients without a certificate.
std::string make_token();

}  // namespace grus::cli
