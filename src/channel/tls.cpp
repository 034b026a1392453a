#include "channel/tls.hpp"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "channel/openssl.hpp"
#include "channel/packing.hpp"

namespace grus::channel {
namespace {

constexpr std::size_t kLargestRecord = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr std::size_t kAhead = 256 * 1024;
// Fewer than a key of AES-GCM is good for (RFC 8446 §5.5).
constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 22;

bool is_in_figures(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// What a server says to a client by an alert.
std::string meaning_of_alert(int alert) {
  switch (alert) {
    case SSL_AD_CERTIFICATE_REQUIRED:
      return "it wants a certificate: client.crt and client.key, from its `grus keys`";
    case SSL_AD_UNKNOWN_CA:
      return "its certificate authority has not made this client's certificate";
    case SSL_AD_CERTIFICATE_EXPIRED:
      return "this client's certificate has expired: make another with `grus keys FOLDER --client NAME`";
    default:
      return fmt::format("it refuses TLS: {}", openssl().SSL_alert_desc_string_long(alert));
  }
}

std::string meaning_of_error(const SSL* ssl) {
  const OpenSsl& lib = openssl();
  const unsigned long error = lib.ERR_peek_last_error();
  const int reason = ERR_GET_REASON(error);
  if (reason > SSL_AD_REASON_OFFSET) return meaning_of_alert(reason - SSL_AD_REASON_OFFSET);
  if (const long code = lib.SSL_get_verify_result(ssl); code != X509_V_OK)
    return fmt::format("its certificate is not accepted: {}", lib.X509_verify_cert_error_string(code));
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) return "it has no certificate";
  return fmt::format("TLS: {}", openssl_error());
}

long control(BIO* /*bio*/, int what, long /*number*/, void* /*pointer*/) { return what == BIO_CTRL_FLUSH ? 1 : 0; }

}  // namespace

const BIO_METHOD* TlsStream::socket_method() {
  static const BIO_METHOD* const method = [] {
    const OpenSsl& lib = openssl();
    BIO_METHOD* const made = lib.BIO_meth_new(lib.BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "Grus socket");
    lib.BIO_meth_set_read_ex(made, read_socket);
    lib.BIO_meth_set_write_ex(made, write_socket);
    lib.BIO_meth_set_ctrl(made, control);
    return made;
  }();
  return method;
}

// OpenSSL asks for a record's head and then for the rest; what comes with that is kept.
int TlsStream::read_socket(BIO* bio, char* to, std::size_t size, std::size_t* received) {
  auto& self = *static_cast<TlsStream*>(openssl().BIO_get_data(bio));
  openssl().BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  if (self.first_ != self.last_) {
    *received = std::min(size, self.last_ - self.first_);
    std::memcpy(to, self.ahead_.get() + self.first_, *received);
    self.first_ += *received;
    return 1;
  }
  iovec parts[2] = {{to, size}, {self.ahead_.get(), kAhead}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t got = self.only_sends_ ? -1 : recvmsg(self.socket_.get(), &message, MSG_DONTWAIT);
  if (got > 0) {
    *received = std::min(size, static_cast<std::size_t>(got));
    self.first_ = 0;
    self.last_ = static_cast<std::size_t>(got) - *received;
    return 1;
  }
  if (self.only_sends_ || (got < 0 && (errno == EAGAIN || errno == EINTR))) {
    openssl().BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
  } else if (!self.lost_) {
    self.lost_ = got == 0 ? Lost{"the connection was closed", Lost::How::closed} : lost_by(errno);
  }
  return 0;
}

int TlsStream::write_socket(BIO* bio, const char* from, std::size_t size, std::size_t* sent) {
  auto& self = *static_cast<TlsStream*>(openssl().BIO_get_data(bio));
  openssl().BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  const ssize_t taken = ::send(self.socket_.get(), from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (taken >= 0) {
    *sent = static_cast<std::size_t>(taken);
    self.sent_ += *sent;
    return 1;
  }
  // OpenSSL only hears that it has to wait: what has come must stay readable.
  if (errno != EAGAIN && errno != EINTR && !self.lost_) self.lost_ = lost_by(errno);
  openssl().BIO_set_flags(bio, BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY);
  return 0;
}

TlsStream::TlsStream(Descriptor socket, std::shared_ptr<const Keys> keys, const std::string& server)
    : keys_{std::move(keys)},
      socket_{std::move(socket)},
      ahead_{std::make_unique_for_overwrite<std::byte[]>(kAhead)},
      record_(kLargestRecord) {
  set_up_socket(socket_.get());
  const OpenSsl& lib = openssl();
  ssl_ = lib.SSL_new(keys_->context());
  BIO* const bio = lib.BIO_new(socket_method());
  if (!ssl_ || !bio) throw Lost{fmt::format("TLS: {}", openssl_error())};
  lib.BIO_set_data(bio, this);
  lib.BIO_set_init(bio, 1);
  lib.SSL_set_bio(ssl_, bio, bio);
  if (keys_->side() == Keys::Side::server) {
    lib.SSL_set_accept_state(ssl_);
    return;
  }
  lib.SSL_set_connect_state(ssl_);
  if (keys_->secret()) return;  // there is no certificate with a name
  X509_VERIFY_PARAM* const expected = lib.SSL_get0_param(ssl_);
  lib.X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  const int code = is_in_figures(server) ? lib.X509_VERIFY_PARAM_set1_ip_asc(expected, server.c_str())
                                         : lib.X509_VERIFY_PARAM_set1_host(expected, server.c_str(), 0);
  if (code != 1 || server.empty()) throw Lost{fmt::format("{} is no name for a server", server), Lost::How::refused};
}

TlsStream::~TlsStream() { openssl().SSL_free(ssl_); }

// Whether a call of OpenSSL's can't go on yet; remembers for what it is to be tried again.
bool TlsStream::must_wait(int code, Direction direction) {
  const int error = openssl().SSL_get_error(ssl_, code);
  if (direction == Direction::in) receiving_needs_room_ = error == SSL_ERROR_WANT_WRITE;
  if (direction == Direction::out) sending_needs_data_ = error == SSL_ERROR_WANT_READ;
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

void TlsStream::fail() {
  if (!lost_) {
    const bool ended = openssl().ERR_peek_last_error() == 0;
    lost_ =
        ended ? Lost{"the connection was closed", Lost::How::closed} : Lost{meaning_of_error(ssl_), Lost::How::refused};
  }
  openssl().ERR_clear_error();
  throw Lost{*lost_};
}

void TlsStream::begin_handshake() {
  const std::lock_guard lock{mutex_};
  openssl().ERR_clear_error();
  only_sends_ = true;
  openssl().SSL_do_handshake(ssl_);
  only_sends_ = false;
}

void TlsStream::finish_handshake(Clock::time_point until) {
  for (;;) {
    Wish wish;
    {
      const std::lock_guard lock{mutex_};
      openssl().ERR_clear_error();
      const int code = openssl().SSL_do_handshake(ssl_);
      if (code == 1) break;
      if (!must_wait(code, Direction::in) || lost_) fail();
      wish.out = receiving_needs_room_;
      wish.in = !receiving_needs_room_;
    }
    wish.limit = until - Clock::now();
    if (wish.limit->count() <= 0) throw Lost{"it doesn't answer as TLS wants it, in time"};
    wait(wish);
  }
  if (keys_->secret() && openssl().SSL_session_reused(ssl_) != 1) throw Lost{"it doesn't know the connection's secret"};
}

std::string TlsStream::other_side() const {
  const std::lock_guard lock{mutex_};
  const X509* const certificate = openssl().SSL_get0_peer_certificate(ssl_);
  if (!certificate) return {};
  char name[256] = "somebody";
  openssl().X509_NAME_get_text_by_NID(openssl().X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
  return *name ? name : "somebody";
}

Secret TlsStream::secret() const {
  constexpr std::string_view kLabel = "EXPORTER-grus-connection";
  const std::lock_guard lock{mutex_};
  Secret secret{};
  if (openssl().SSL_export_keying_material(ssl_, secret.data(), secret.size(), kLabel.data(), kLabel.size(), nullptr, 0,
                                           0) != 1)
    throw Lost{fmt::format("TLS: {}", openssl_error())};
  return secret;
}

Descriptor TlsStream::release() {
  const std::lock_guard lock{mutex_};
  if (has_data()) throw Lost{"it says more than it was asked for"};
  return std::move(socket_);
}

bool TlsStream::has_data() const { return first_ != last_ || openssl().SSL_pending(ssl_) > 0; }

std::size_t TlsStream::receive_some(void* to, std::size_t size) {
  std::size_t received = 0;
  while (received != size) {
    const std::lock_guard lock{mutex_};
    if (received != 0 && !has_data()) break;
    openssl().ERR_clear_error();
    std::size_t got = 0;
    const int code = openssl().SSL_read_ex(ssl_, static_cast<std::byte*>(to) + received, size - received, &got);
    received += got;
    const bool waits = must_wait(code, Direction::in);
    if (code == 1) continue;
    if (!waits && received == 0) fail();
    break;
  }
  return received;
}

// The start of all that is to be sent, as much as goes into one record: a message's parts go together.
void TlsStream::stage(std::span<const iovec> parts) {
  for (const iovec& part : parts) {
    const std::size_t piece = std::min(part.iov_len, record_.size() - staged_);
    if (piece == 0) continue;  // an empty part may be nowhere
    std::memcpy(record_.data() + staged_, part.iov_base, piece);
    staged_ += piece;
  }
}

void TlsStream::send_some(std::span<iovec>& parts) {
  {
    const std::lock_guard lock{mutex_};
    const std::uint64_t came = came_so_far();
    while (!records_.empty() && records_.front().end <= came) records_.pop_front();
  }
  skip(parts, 0);
  for (bool has_sent = false; !parts.empty(); has_sent = true) {
    const std::lock_guard lock{mutex_};
    if (staged_ == 0) {
      if (++records_with_key_ % kRecordsPerKey == 0) openssl().SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);
      stage(parts);
    }
    openssl().ERR_clear_error();
    std::size_t sent = 0;
    const int code = openssl().SSL_write_ex(ssl_, record_.data(), staged_, &sent);
    const bool waits = must_wait(code, Direction::out);
    if (code != 1 && (!waits || lost_) && !has_sent) fail();
    if (code != 1) return;  // what was sent is sent; if it failed, the next call says so
    records_.push_back({sent_, staged_});
    skip(parts, staged_);
    staged_ = 0;
  }
}

std::uint64_t TlsStream::came_so_far() const {
  int bytes = 0;
  return ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 ? sent_ - static_cast<std::uint64_t>(bytes) : 0;
}

std::uint64_t TlsStream::rate() const { return delivery_rate(socket_.get()); }

std::size_t TlsStream::outstanding() const {
  const std::lock_guard lock{mutex_};
  const std::uint64_t came = came_so_far();
  std::size_t size = 0;
  for (auto record = records_.rbegin(); record != records_.rend() && record->end > came; ++record) size += record->size;
  return size;
}

Stream::Ready TlsStream::wait(const Wish& wish) {
  Wish inner = wish;
  bool has_some = false;
  bool in_needs_room = false;
  bool out_needs_data = false;
  {
    const std::lock_guard lock{mutex_};
    has_some = wish.in && has_data();
    in_needs_room = wish.in && receiving_needs_room_;
    out_needs_data = wish.out && sending_needs_data_;
  }
  inner.in |= out_needs_data;
  inner.out |= in_needs_room;
  if (has_some) inner.limit = std::chrono::nanoseconds{0};
  const Ready ready = wait_for_socket(socket_.get(), inner);
  return {wish.in && (has_some || ready.in || (in_needs_room && ready.out)),
          wish.out && (ready.out || (out_needs_data && ready.in)), ready.also, ready.ended};
}

void TlsStream::wait_for_end() { wait_for_end_of(socket_.get()); }

void TlsStream::shut() { shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace grus::channel
