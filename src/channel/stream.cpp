#include "channel/stream.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "channel/packing.hpp"

namespace grus::channel {
namespace {

// A host that is switched off, or that no cable leads to any more, says nothing. One whose program is busy or stopped
// still answers the system's own questions.
void ask_for_signs_of_life(int socket) {
  const auto set = [&](int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof value); };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 8000);  // ms
}

// Its address, as bytes; empty if it has none.
std::string address_by(int (*ask)(int, sockaddr*, socklen_t*), int socket) {
  sockaddr_storage found{};
  socklen_t size = sizeof found;
  if (ask(socket, reinterpret_cast<sockaddr*>(&found), &size) != 0) return {};
  const auto bytes = [](const auto& address) {
    return std::string(reinterpret_cast<const char*>(&address), sizeof address);
  };
  if (found.ss_family == AF_INET) return bytes(reinterpret_cast<const sockaddr_in&>(found).sin_addr);
  return bytes(reinterpret_cast<const sockaddr_in6&>(found).sin6_addr);
}

// Within one host nothing is in the way: sending at a measured pace, as BBR does, costs half the speed.
void send_at_once_within_host(int socket) {
  const std::string peer = address_by(getpeername, socket);
  if (peer.empty() || peer != address_by(getsockname, socket)) return;
  constexpr std::string_view kReno = "reno";
  setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

}  // namespace

Lost lost_by(int error) {
  const bool closed = error == ECONNRESET || error == EPIPE;
  return Lost{std::strerror(error), closed ? Lost::How::closed : Lost::How::unknown};
}

void set_up_socket(int socket) {
  // Small messages must not wait for the acknowledgement of earlier ones. (Fails on a Unix socket, where it is so.)
  const int on = 1;
  if (setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) return;
  ask_for_signs_of_life(socket);
  send_at_once_within_host(socket);
}

void skip(std::span<iovec>& parts, std::size_t sent) {
  while (!parts.empty() && sent >= parts.front().iov_len) {
    sent -= parts.front().iov_len;
    parts = parts.subspan(1);
  }
  if (parts.empty()) return;
  parts.front().iov_base = static_cast<std::byte*>(parts.front().iov_base) + sent;
  parts.front().iov_len -= sent;
}

void Stream::send(std::span<iovec> parts) {
  for (;;) {
    send_some(parts);
    if (parts.empty()) break;
    wait({.out = true});
  }
  let_go();
}

SocketStream::SocketStream(Descriptor socket) : socket_{std::move(socket)} { set_up_socket(socket_.get()); }

void SocketStream::send_some(std::span<iovec>& parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (sent < 0) throw lost_by(errno);
  skip(parts, static_cast<std::size_t>(sent));
}

std::size_t Stream::receive_much(void* to, std::size_t size) {
  for (;;) {
    if (const std::size_t received = receive_some(to, size); received != 0 || size == 0) return received;
    wait({.in = true});
  }
}

// Who is woken for every packet does little else; who waits for too much waits while it could work.
std::size_t SocketStream::receive_much(void* to, std::size_t size) {
  constexpr std::size_t kMuch = 128 * 1024;
  const bool is_much = size >= kMuch;
  if (is_much) wake_for(kMuch);
  for (;;) {
    if (is_much) wait({.in = true});
    const std::size_t received = receive(to, size, is_much ? MSG_DONTWAIT : MSG_WAITALL);
    if (received == 0) continue;
    if (is_much) wake_for(1);
    return received;
  }
}

void SocketStream::wake_for(int bytes) { setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes); }

std::size_t SocketStream::receive(void* to, std::size_t size, int flags) {
  const ssize_t received = recv(socket_.get(), to, size, flags);
  if (received < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
  if (received < 0) throw lost_by(errno);
  if (received == 0 && size != 0) throw Lost{"the connection was closed", Lost::How::closed};
  return static_cast<std::size_t>(received);
}

std::uint64_t SocketStream::rate() const { return delivery_rate(socket_.get()); }

Stream::Ready SocketStream::wait(const Wish& wish) { return wait_for_socket(socket_.get(), wish); }

Stream::Ready wait_for_socket(int socket, const Stream::Wish& wish) {
  const auto events = static_cast<short>((wish.in ? POLLIN : 0) | (wish.out ? POLLOUT : 0));
  pollfd ready[2] = {{wish.in || wish.out || wish.ends ? socket : -1, events, 0}, {wish.also, POLLIN, 0}};
  timespec limit{};
  if (wish.limit) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(*wish.limit);
    limit = {seconds.count(), (*wish.limit - seconds).count()};
  }
  ppoll(ready, 2, wish.limit ? &limit : nullptr, nullptr);
  const bool ended = (ready[0].revents & (POLLHUP | POLLERR)) != 0;
  return {wish.in && (ended || (ready[0].revents & POLLIN)), wish.out && (ended || (ready[0].revents & POLLOUT)),
          ready[1].revents != 0, ended};
}

void SocketStream::wait_for_end() { wait_for_end_of(socket_.get()); }

void wait_for_end_of(int socket) {
  pollfd ended{socket, POLLRDHUP, 0};
  while (poll(&ended, 1, -1) <= 0) continue;
  throw Lost{"the connection was closed", Lost::How::closed};
}

std::size_t SocketStream::outstanding() const {
  int bytes = 0;
  return ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

void SocketStream::shut() { shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace grus::channel
