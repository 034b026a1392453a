#include "channel/keys.hpp"

#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace

bool Token::operator==(const Token& other) const {
  unsigned differs = 0;
  for (std::size_t index = 0; index < text.size(); ++index)
    differs |= static_cast<unsigned char>(text[index] ^ other.text[index]);
  return differs == 0;
}

Keys::Keys(Side side, const fs::path& folder) : side_{side} {
  const OpenSsl& ssl = openssl();
  const std::string name = is_accepting() ? "server" : "client";
  const fs::path authority = folder / "ca.crt";
  const fs::path certificate = folder / (name + ".crt");
  const fs::path key = folder / (name + ".key");
  require_file(authority);
  std::error_code error;
  const bool shows_ticket = side == Side::sender || side == Side::receiver;
  const bool has_token = !shows_ticket && fs::exists(folder / "token", error);
  const bool has_certificate =
      is_accepting() || (side == Side::client && (!has_token || fs::exists(certificate, error)));
  if (has_certificate) {
    require_file(certificate);
    require_private(key);
  }
  if (has_token && (side == Side::server || !has_certificate)) token_ = read_token(folder / "token");

  std::unique_ptr<SSL_CTX, decltype(ssl.SSL_CTX_free)> context{ssl.SSL_CTX_new(ssl.TLS_method()), ssl.SSL_CTX_free};
  if (!context) throw refusal(fmt::format("OpenSSL: {}", openssl_error()));
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr);
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, nullptr);
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_MODE,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_NO_AUTO_CHAIN,
                   nullptr);
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  ssl.SSL_CTX_set_num_tickets(context.get(), 0);
  ssl.SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  const bool everybody_has_one = !is_accepting() || !token_;
  const int verify = SSL_VERIFY_PEER | (everybody_has_one ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0);
  ssl.SSL_CTX_set_verify(context.get(), side == Side::receiver ? SSL_VERIFY_NONE : verify, nullptr);
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

Keys::~Keys() { openssl().SSL_CTX_free(context_); }

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
