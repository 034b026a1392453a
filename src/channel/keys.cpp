#include "channel/keys.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/log.hpp"
#include "channel/openssl.hpp"
#include "channel/stream.hpp"

namespace grus::channel {
namespace {

namespace fs = std::filesystem;

Lost refusal(const std::string& text) { return Lost{text, Lost::How::refused}; }

const char* environment(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value ? value : nullptr;
}

void require_file(const fs::path& file) {
  if (access(file.c_str(), R_OK) == 0) return;
  throw refusal(fmt::format("{}: {}; `grus keys` makes keys, and --keys or GRUS_KEYS names their folder", file.string(),
                            std::strerror(errno)));
}

void require_private(const fs::path& file) {
  require_file(file);
  struct stat about {};
  if (stat(file.c_str(), &about) == 0 && (about.st_mode & (S_IRWXG | S_IRWXO)) == 0) return;
  throw refusal(fmt::format("{0} could be read by others: run `chmod 600 {0}`", file.string()));
}

Token read_token(const fs::path& file) {
  require_private(file);
  std::ifstream stream{file};
  std::string text;
  stream >> text;
  Token token;
  if (text.size() < kShortestToken || text.size() > token.text.size()) {
    throw refusal(fmt::format("{}: a token has {} to {} characters, and no blanks; `grus keys --token` makes one",
                              file.string(), kShortestToken, token.text.size()));
  }
  text.copy(token.text.data(), text.size());
  return token;
}

// A key with a password would make OpenSSL ask for it on the terminal.
int no_password(char* /*buffer*/, int /*size*/, int /*rw*/, void* /*data*/) { return 0; }

using Context = std::unique_ptr<SSL_CTX, decltype(OpenSsl::SSL_CTX_free)>;

Context new_context() {
  const OpenSsl& ssl = openssl();
  Context context{ssl.SSL_CTX_new(ssl.TLS_method()), ssl.SSL_CTX_free};
  if (!context) throw refusal(fmt::format("OpenSSL: {}", openssl_error()));
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr);
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, nullptr);
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_MODE,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_NO_AUTO_CHAIN,
                   nullptr);
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  ssl.SSL_CTX_set_num_tickets(context.get(), 0);
  return context;
}

constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherNumber[] = {0x13, 0x01};
constexpr unsigned char kSecretsName[] = "grus";

// A secret in OpenSSL's terms: a session that was never held.
SSL_SESSION* session_of(SSL* connection) {
  const OpenSsl& ssl = openssl();
  const auto& keys = *static_cast<const Keys*>(ssl.SSL_CTX_get_ex_data(ssl.SSL_get_SSL_CTX(connection), 0));
  const Secret& secret = *keys.secret();
  std::unique_ptr<SSL_SESSION, decltype(ssl.SSL_SESSION_free)> session{ssl.SSL_SESSION_new(), ssl.SSL_SESSION_free};
  const bool done = session && ssl.SSL_SESSION_set1_master_key(session.get(), secret.data(), secret.size()) == 1 &&
                    ssl.SSL_SESSION_set_cipher(session.get(), ssl.SSL_CIPHER_find(connection, kCipherNumber)) == 1 &&
                    ssl.SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1;
  return done ? session.release() : nullptr;
}

int use_secret(SSL* connection, const EVP_MD* /*digest*/, const unsigned char** name, std::size_t* size,
               SSL_SESSION** session) {
  *name = kSecretsName;
  *size = sizeof kSecretsName;
  *session = session_of(connection);
  return *session ? 1 : 0;
}

int find_secret(SSL* connection, const unsigned char* /*name*/, std::size_t /*size*/, SSL_SESSION** session) {
  *session = session_of(connection);
  return *session ? 1 : 0;
}

}  // namespace

bool Token::operator==(const Token& other) const {
  unsigned differs = 0;
  for (std::size_t index = 0; index < text.size(); ++index)
    differs |= static_cast<unsigned char>(text[index] ^ other.text[index]);
  return differs == 0;
}

Keys::Keys(Side side, const fs::path& folder) : side_{side} {
  const OpenSsl& ssl = openssl();
  const std::string name = side == Side::server ? "server" : "client";
  const fs::path authority = folder / "ca.crt";
  const fs::path certificate = folder / (name + ".crt");
  const fs::path key = folder / (name + ".key");
  require_file(authority);
  std::error_code error;
  const bool has_token = fs::exists(folder / "token", error);
  const bool has_certificate = side == Side::server || !has_token || fs::exists(certificate, error);
  if (has_certificate) {
    require_file(certificate);
    require_private(key);
  }
  if (has_token && (side == Side::server || !has_certificate)) token_ = read_token(folder / "token");
  if (side == Side::server) revoked_ = revoked_in(folder);

  Context context = new_context();
  ssl.SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  const bool everybody_has_one = side == Side::client || !token_;
  ssl.SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | (everybody_has_one ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                         nullptr);
  const auto expect = [&](int code, const fs::path& file) {
    if (code != 1) throw refusal(fmt::format("{}: {}", file.string(), openssl_error()));
  };
  ssl.ERR_clear_error();
  expect(ssl.SSL_CTX_load_verify_file(context.get(), authority.c_str()), authority);
  if (has_certificate) {
    expect(ssl.SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()), certificate);
    expect(ssl.SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM), key);
  }
  context_ = context.release();
}

// Neither side has a certificate, nor believes one: who doesn't know the secret gets nowhere.
Keys::Keys(Side side, const Secret& secret) : side_{side}, secret_{secret} {
  const OpenSsl& ssl = openssl();
  Context context = new_context();
  ssl.SSL_CTX_set_ex_data(context.get(), 0, this);
  if (ssl.SSL_CTX_set_ciphersuites(context.get(), kCipher) != 1) throw refusal(openssl_error());
  if (side == Side::server) {
    ssl.SSL_CTX_set_psk_find_session_callback(context.get(), find_secret);
  } else {
    ssl.SSL_CTX_set_psk_use_session_callback(context.get(), use_secret);
    ssl.SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  }
  context_ = context.release();
}

Keys::~Keys() { openssl().SSL_CTX_free(context_); }

bool Keys::has_revoked(const std::string& client) const {
  return std::find(revoked_.begin(), revoked_.end(), client) != revoked_.end();
}

std::vector<std::string> revoked_in(const fs::path& folder) {
  const fs::path file = folder / kRevoked;
  std::vector<std::string> names;
  if (access(file.c_str(), F_OK) != 0 && errno == ENOENT) return names;
  std::ifstream stream{file};
  for (std::string name; stream >> std::ws && std::getline(stream, name);) {
    name.erase(name.find_last_not_of(" \t\r") + 1);
    names.push_back(name);
  }
  if (!stream.eof()) throw refusal(fmt::format("{}: {}", file.string(), std::strerror(errno)));
  return names;
}

bool are_keys_named() { return environment("GRUS_KEYS") != nullptr; }

fs::path keys_folder() {
  if (const char* named = environment("GRUS_KEYS")) return named;
  const char* const configuration = environment("XDG_CONFIG_HOME");
  const char* const home = environment("HOME");
  const fs::path users =
      (configuration ? fs::path{configuration} : fs::path{home ? home : "/"} / ".config") / "grus/keys";
  std::error_code error;
  return geteuid() == 0 && !fs::exists(users, error) ? fs::path{"/etc/grus/keys"} : users;
}

std::shared_ptr<const Keys> keys_for(const Address& address) {
  if (address.kind != Address::Kind::tcp || (is_loopback(address) && !are_keys_named())) return nullptr;
  return std::make_shared<Keys>(Keys::Side::client, keys_folder());
}

}  // namespace grus::channel
