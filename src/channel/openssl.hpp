// OpenSSL, loaded when TLS is first used: other programs start no slower for it. Programs that bring an OpenSSL of
// their own keep theirs, and this one uses the system's.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <string>

namespace grus::channel {

// What is used of it: connections, then certificates.
#define GRUS_OPENSSL_FUNCTIONS(USE)          \
  USE(OPENSSL_init_ssl)                      \
  USE(TLS_method)                            \
  USE(SSL_CTX_new)                           \
  USE(SSL_CTX_free)                          \
  USE(SSL_CTX_ctrl)                          \
  USE(SSL_CTX_set_verify)                    \
  USE(SSL_CTX_set_num_tickets)               \
  USE(SSL_CTX_set_default_passwd_cb)         \
  USE(SSL_CTX_set_ciphersuites)              \
  USE(SSL_CTX_set_psk_find_session_callback) \
  USE(SSL_CTX_set_psk_use_session_callback)  \
  USE(SSL_CTX_set_ex_data)                   \
  USE(SSL_CTX_get_ex_data)                   \
  USE(SSL_get_SSL_CTX)                       \
  USE(SSL_CIPHER_find)                       \
  USE(SSL_SESSION_new)                       \
  USE(SSL_SESSION_free)                      \
  USE(SSL_SESSION_set1_master_key)           \
  USE(SSL_SESSION_set_cipher)                \
  USE(SSL_SESSION_set_protocol_version)      \
  USE(SSL_session_reused)                    \
  USE(SSL_export_keying_material)            \
  USE(SSL_CTX_load_verify_file)              \
  USE(SSL_CTX_use_certificate_chain_file)    \
  USE(SSL_CTX_use_PrivateKey_file)           \
  USE(SSL_new)                               \
  USE(SSL_free)                              \
  USE(SSL_set_bio)                           \
  USE(SSL_set_accept_state)                  \
  USE(SSL_set_connect_state)                 \
  USE(SSL_do_handshake)                      \
  USE(SSL_read_ex)                           \
  USE(SSL_write_ex)                          \
  USE(SSL_pending)                           \
  USE(SSL_key_update)                        \
  USE(SSL_get_error)                         \
  USE(SSL_get0_param)                        \
  USE(SSL_get_verify_result)                 \
  USE(SSL_get0_peer_certificate)             \
  USE(SSL_alert_desc_string_long)            \
  USE(BIO_new)                               \
  USE(BIO_free)                              \
  USE(BIO_ctrl)                              \
  USE(BIO_get_data)                          \
  USE(BIO_set_data)                          \
  USE(BIO_set_init)                          \
  USE(BIO_set_flags)                         \
  USE(BIO_clear_flags)                       \
  USE(BIO_meth_new)                          \
  USE(BIO_meth_set_ctrl)                     \
  USE(BIO_meth_set_read_ex)                  \
  USE(BIO_meth_set_write_ex)                 \
  USE(BIO_get_new_index)                     \
  USE(BIO_new_mem_buf)                       \
  USE(BIO_s_mem)                             \
  USE(ERR_clear_error)                       \
  USE(ERR_peek_last_error)                   \
  USE(ERR_reason_error_string)               \
  USE(X509_VERIFY_PARAM_set1_host)           \
  USE(X509_VERIFY_PARAM_set1_ip_asc)         \
  USE(X509_VERIFY_PARAM_set_hostflags)       \
  USE(X509_verify_cert_error_string)         \
  USE(X509_NAME_get_text_by_NID)             \
  USE(X509_get_subject_name)                 \
  USE(X509_new)                              \
  USE(X509_free)                             \
  USE(X509_set_version)                      \
  USE(X509_get_serialNumber)                 \
  USE(X509_getm_notBefore)                   \
  USE(X509_getm_notAfter)                    \
  USE(X509_gmtime_adj)                       \
  USE(X509_time_adj_ex)                      \
  USE(X509_set_pubkey)                       \
  USE(X509_set_issuer_name)                  \
  USE(X509_NAME_add_entry_by_NID)            \
  USE(X509_add_ext)                          \
  USE(X509_EXTENSION_free)                   \
  USE(X509V3_set_ctx)                        \
  USE(X509V3_EXT_conf_nid)                   \
  USE(X509_check_private_key)                \
  USE(X509_sign)                             \
  USE(ASN1_INTEGER_set_uint64)               \
  USE(EVP_PKEY_Q_keygen)                     \
  USE(EVP_PKEY_free)                         \
  USE(EVP_sha256)                            \
  USE(PEM_read_bio_X509)                     \
  USE(PEM_read_bio_PrivateKey)               \
  USE(PEM_write_bio_X509)                    \
  USE(PEM_write_bio_PrivateKey)              \
  USE(RAND_bytes)

struct OpenSsl {
// NOLINTNEXTLINE(bugprone-macro-parentheses): it is a name
#define GRUS_MEMBER(name) decltype(&::name) name;
  GRUS_OPENSSL_FUNCTIONS(GRUS_MEMBER)
#undef GRUS_MEMBER
};

// Throws Lost if this system has none.
const OpenSsl& openssl();
// What went wrong last, in its words.
std::string openssl_error();

}  // namespace grus::channel
