#include "cli/certificates.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/log.hpp"
#include "channel/openssl.hpp"
#include "cli/problem.hpp"

namespace grus::cli {
namespace {

using channel::openssl;

constexpr int kAuthorityDays = 3650;
constexpr long kClocksDiffer = 3600;  // seconds, between hosts
constexpr long kVersion3 = 2;

void expect(bool done) {
  if (!done) throw Problem{fmt::format("a certificate can't be made: {}", channel::openssl_error())};
}

bool is_in_figures(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// Collects what OpenSSL writes, or gives it what it reads.
using Text = std::unique_ptr<BIO, decltype(channel::OpenSsl::BIO_free)>;

Text text_to_read(const std::string& text) {
  return {openssl().BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), openssl().BIO_free};
}

template <typename Write>
std::string written(Write write) {
  const Text text{openssl().BIO_new(openssl().BIO_s_mem()), openssl().BIO_free};
  expect(text && write(text.get()) == 1);
  char* data = nullptr;
  const long size = openssl().BIO_ctrl(text.get(), BIO_CTRL_INFO, 0, &data);
  return {data, static_cast<std::size_t>(size)};
}

Identity written(X509* certificate, EVP_PKEY* key) {
  return {written([&](BIO* to) { return openssl().PEM_write_bio_X509(to, certificate); }), written([&](BIO* to) {
            return openssl().PEM_write_bio_PrivateKey(to, key, nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

EVP_PKEY* new_key() {
  EVP_PKEY* const key = openssl().EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
  expect(key != nullptr);
  return key;
}

}  // namespace

bool is_host(const std::string& text) {
  constexpr std::size_t kLongest = 253;
  const bool is_name = std::all_of(text.begin(), text.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '.' || letter == '_';
  });
  return is_in_figures(text) || (is_name && !text.empty() && text.size() <= kLongest);
}

Authority::Authority() : key_{new_key(), openssl().EVP_PKEY_free}, certificate_{nullptr, openssl().X509_free} {
  certificate_ = make("Grus certificate authority", key_.get(), kAuthorityDays,
                      {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                       {NID_key_usage, "critical,keyCertSign,cRLSign"},
                       {NID_subject_key_identifier, "hash"}});
}

Authority::Authority(const Identity& identity)
    : key_{openssl().PEM_read_bio_PrivateKey(text_to_read(identity.key).get(), nullptr, nullptr, nullptr),
           openssl().EVP_PKEY_free},
      certificate_{openssl().PEM_read_bio_X509(text_to_read(identity.certificate).get(), nullptr, nullptr, nullptr),
                   openssl().X509_free} {
  if (!key_ || !certificate_ || openssl().X509_check_private_key(certificate_.get(), key_.get()) != 1)
    throw Problem{"ca.key and ca.crt there are not those of a certificate authority"};
}

Identity Authority::identity() const { return written(certificate_.get(), key_.get()); }

// Signed by this authority, or by itself if that is what is being made.
Authority::Certificate Authority::make(const std::string& name, EVP_PKEY* key, int days,
                                       const std::vector<Extension>& extensions) const {
  const auto& lib = openssl();
  Certificate made{lib.X509_new(), lib.X509_free};
  expect(made != nullptr);
  X509* const one = made.get();
  X509* const issuer = certificate_ ? certificate_.get() : one;
  std::uint64_t serial = 0;
  expect(lib.RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1);
  expect(lib.X509_set_version(one, kVersion3) == 1 &&
         lib.ASN1_INTEGER_set_uint64(lib.X509_get_serialNumber(one), serial >> 1 | 1) == 1 &&
         lib.X509_gmtime_adj(lib.X509_getm_notBefore(one), -kClocksDiffer) &&
         lib.X509_time_adj_ex(lib.X509_getm_notAfter(one), days, 0, nullptr) && lib.X509_set_pubkey(one, key) == 1 &&
         lib.X509_NAME_add_entry_by_NID(lib.X509_get_subject_name(one), NID_commonName, MBSTRING_UTF8,
                                        reinterpret_cast<const unsigned char*>(name.data()),
                                        static_cast<int>(name.size()), -1, 0) == 1 &&
         lib.X509_set_issuer_name(one, lib.X509_get_subject_name(issuer)) == 1);
  X509V3_CTX about{};
  lib.X509V3_set_ctx(&about, issuer, one, nullptr, nullptr, 0);
  for (const Extension& extension : extensions) {
    const std::unique_ptr<X509_EXTENSION, decltype(lib.X509_EXTENSION_free)> value{
        lib.X509V3_EXT_conf_nid(nullptr, &about, extension.kind, extension.value.c_str()), lib.X509_EXTENSION_free};
    expect(value && lib.X509_add_ext(one, value.get(), -1) == 1);
  }
  expect(lib.X509_sign(one, key_.get(), lib.EVP_sha256()) != 0);
  return made;
}

Identity Authority::make_identity(const std::string& name, int days, std::vector<Extension> extensions) const {
  extensions.insert(extensions.end(), {{NID_basic_constraints, "critical,CA:FALSE"},
                                       {NID_key_usage, "critical,digitalSignature"},
                                       {NID_subject_key_identifier, "hash"},
                                       {NID_authority_key_identifier, "keyid"}});
  const Key key{new_key(), openssl().EVP_PKEY_free};
  return written(make(name, key.get(), days, extensions).get(), key.get());
}

Identity Authority::make_server(const std::vector<std::string>& hosts, int days) const {
  std::string names;
  for (const auto& host : hosts)
    names += fmt::format("{}{}:{}", names.empty() ? "" : ",", is_in_figures(host) ? "IP" : "DNS", host);
  return make_identity("Grus server", days, {{NID_ext_key_usage, "serverAuth"}, {NID_subject_alt_name, names}});
}

Identity Authority::make_client(const std::string& name, int days) const {
  return make_identity(name, days, {{NID_ext_key_usage, "clientAuth"}});
}

std::string make_token() {
  std::array<unsigned char, 32> secret{};
  expect(openssl().RAND_bytes(secret.data(), static_cast<int>(secret.size())) == 1);
  std::string text;
  for (const unsigned char byte : secret) text += fmt::format("{:02x}", byte);
  return text + "\n";
}

}  // namespace grus::cli
