#include "channel/address.hpp"

#include <arpa/inet.h>
#include <linux/vm_sockets.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/log.hpp"
#include "channel/stream.hpp"

namespace grus::channel {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRelaySocket = "/run/grus/host.sock";
struct NamedGuest {
  std::string_view name;
  unsigned number;
};
constexpr NamedGuest kGuests[] = {{"host", VMADDR_CID_HOST}, {"local", VMADDR_CID_LOCAL}, {"any", VMADDR_CID_ANY}};
constexpr int kWaiting = 64;  // connections that wait to be accepted

std::string reason() { return std::strerror(errno); }

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw Lost{fmt::format("{}: the path of a socket can't be so long", path)};
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Whether nobody but its owner and root can take away what is in the folder.
bool is_safe(const fs::path& folder) {
  struct stat about {};
  if (stat(folder.c_str(), &about) != 0) return false;
  const bool owned = about.st_uid == geteuid() || about.st_uid == 0;
  return owned && ((about.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (about.st_mode & S_ISVTX) != 0);
}

sockaddr_vm vsock_address(const Address& address) {
  sockaddr_vm name{};
  name.svm_family = AF_VSOCK;
  const auto known = std::find_if(std::begin(kGuests), std::end(kGuests),
                                  [&](const auto& guest) { return guest.name == address.path; });
  name.svm_cid = known != std::end(kGuests) ? known->number : static_cast<unsigned>(std::stoul(address.path));
  name.svm_port = static_cast<unsigned>(std::stoul(address.port));
  return name;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
}

struct Resolved {
  addrinfo* list = nullptr;
  ~Resolved() {
    if (list) freeaddrinfo(list);
  }
};

void resolve(const Address& address, int flags, Resolved& resolved) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  const int code = getaddrinfo(address.path.c_str(), address.port.c_str(), &hints, &resolved.list);
  if (code != 0) throw Lost{fmt::format("{}: {}", address.text(), gai_strerror(code))};
}

}  // namespace

Address Address::parse(const std::string& text) {
  if (text.starts_with("unix:") && text.size() > 5) return {Kind::unix_socket, text.substr(5), {}};
  if (text == "virtio-serial:") return {Kind::virtio_serial, kRelaySocket, {}};
  if (text.starts_with("virtio-serial:")) return {Kind::virtio_serial, text.substr(14), {}};
  if (text.starts_with("ivshmem:")) {
    const std::size_t at = std::min(text.find('@'), text.size());
    const bool has_socket = at + 1 < text.size();
    return {Kind::ivshmem, has_socket ? text.substr(at + 1) : kRelaySocket, text.substr(8, at - 8)};
  }
  const bool is_vsock = text.starts_with("vsock:");
  if (text.starts_with("tcp:") || is_vsock) {
    const std::size_t start = text.find(':') + 1;
    const std::size_t colon = text.rfind(':');
    std::string host = text.substr(start, colon > start ? colon - start : 0);
    const std::string port = text.substr(colon + 1);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    const bool is_guest = is_number(host) || std::any_of(std::begin(kGuests), std::end(kGuests),
                                                         [&](const NamedGuest& guest) { return guest.name == host; });
    if (!host.empty() && is_number(port) && (is_guest || !is_vsock))
      return {is_vsock ? Kind::vsock : Kind::tcp, host, port};
  }
  throw std::invalid_argument{
      fmt::format("{} is no address of a server: write unix:PATH, tcp:HOST:PORT, or in a guest "
                  "vsock:host:PORT, virtio-serial: or ivshmem:",
                  text)};
}

std::string Address::text() const {
  if (kind == Kind::unix_socket) return "unix:" + path;
  if (kind == Kind::virtio_serial) return "virtio-serial:" + path;
  if (kind == Kind::ivshmem) return fmt::format("ivshmem:{}{}", port, path == kRelaySocket ? "" : "@" + path);
  if (kind == Kind::vsock) return fmt::format("vsock:{}:{}", path, port);
  const bool is_plain = path.find(':') == std::string::npos;  // of IPv6 addresses it isn't
  return is_plain ? fmt::format("tcp:{}:{}", path, port) : fmt::format("tcp:[{}]:{}", path, port);
}

Address default_address() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string folder = runtime && *runtime ? std::string{runtime} : fmt::format("/run/user/{}", getuid());
  std::error_code error;
  if (fs::is_directory(folder, error)) return {Address::Kind::unix_socket, folder + "/grus/serve.sock", {}};
  return {Address::Kind::unix_socket, fmt::format("/tmp/grus-{}/serve.sock", getuid()), {}};
}

Descriptor connect_to(const Address& address, std::optional<std::chrono::milliseconds> limit) {
  if (address.kind == Address::Kind::vsock) {
    const sockaddr_vm name = vsock_address(address);
    Descriptor socket{::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0)
      throw Lost{fmt::format("{}: {}; is `grus serve` running there?", address.text(), reason())};
    return socket;
  }
  if (address.is_path()) {
    const sockaddr_un name = unix_address(address.path);
    Descriptor socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0)
      throw Lost{fmt::format("{}: {}; is `grus {}` running there?", address.text(), reason(),
                             address.kind == Address::Kind::unix_socket ? "serve" : "relay")};
    return socket;
  }
  Resolved resolved;
  resolve(address, 0, resolved);
  for (const addrinfo* one = resolved.list; one; one = one->ai_next) {
    Descriptor socket{::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol)};
    set_up_socket(socket.get());  // a host that is gone before it has welcomed us must be noticed as well
    if (limit) {                  // which counts for connecting, too
      const timeval time{limit->count() / 1000, limit->count() % 1000 * 1000};
      setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
      setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    }
    if (::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0) return socket;
  }
  const int error = errno;
  throw Lost{fmt::format("{}: {}; is `grus serve` running there?", address.text(), std::strerror(error)),
             error == ECONNREFUSED ? Lost::How::refused : Lost::How::unknown};
}

bool is_unix(const Descriptor& socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  return getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0 && name.ss_family == AF_UNIX;
}

bool is_loopback(const Address& address) {
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, address.path.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
  if (inet_pton(AF_INET6, address.path.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return address.path == "localhost";  // what other names mean, a name server says
}

std::string other_side_of(const Descriptor& socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0) return "somebody";
  if (name.ss_family == AF_VSOCK) {
    const auto& guest = reinterpret_cast<const sockaddr_vm&>(name);
    return Address{Address::Kind::vsock, std::to_string(guest.svm_cid), std::to_string(guest.svm_port)}.text();
  }
  if (getnameinfo(reinterpret_cast<sockaddr*>(&name), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "somebody";
  return Address{Address::Kind::tcp, host, port}.text();
}

bool is_of_this_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == 0 || peer.uid == geteuid());
}

Descriptor listen_at(const Address& address) {
  const auto refuse = [&] { return Lost{fmt::format("{}: {}", address.text(), reason())}; };
  if (address.kind == Address::Kind::vsock) {
    const sockaddr_vm name = vsock_address(address);
    Descriptor socket{::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
        listen(socket.get(), kWaiting) != 0)
      throw refuse();
    return socket;
  }
  if (address.is_path()) {
    const sockaddr_un name = unix_address(address.path);
    const fs::path folder = fs::path{address.path}.parent_path();
    std::error_code error;
    if (!folder.empty() && !fs::exists(folder, error) && mkdir(folder.c_str(), S_IRWXU) != 0) throw refuse();
    if (!folder.empty() && !is_safe(folder))
      throw Lost{
          fmt::format("{}: others could put a socket of theirs there; use a folder of your own", folder.string())};
    Descriptor socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    // A socket that nobody listens at is left over from a server that was killed.
    const Descriptor probe{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0)
      throw Lost{fmt::format("{}: another server listens there", address.text())};
    if (errno == ECONNREFUSED) unlink(address.path.c_str());
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) throw refuse();
    if (chmod(address.path.c_str(), S_IRUSR | S_IWUSR) != 0 || listen(socket.get(), kWaiting) != 0) throw refuse();
    return socket;
  }
  Resolved resolved;
  resolve(address, AI_PASSIVE, resolved);
  Descriptor socket{::socket(resolved.list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.get(), resolved.list->ai_addr, resolved.list->ai_addrlen) != 0 || listen(socket.get(), kWaiting) != 0)
    throw refuse();
  return socket;
}

Address bound_at(const Descriptor& listening, Address wanted) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  char port[NI_MAXSERV];
  if (wanted.kind == Address::Kind::tcp &&
      getsockname(listening.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&name), size, nullptr, 0, port, sizeof port, NI_NUMERICSERV) == 0)
    wanted.port = port;
  return wanted;
}

Descriptor accept_from(const Descriptor& listening) {
  return Descriptor{accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC)};
}

}  // namespace grus::channel
