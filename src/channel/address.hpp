// Where servers are, and how sockets get there.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "channel/descriptor.hpp"

namespace grus::channel {

// "unix:PATH", "tcp:HOST:PORT", or between a guest and its host "vsock:CID:PORT", "virtio-serial:PATH", which is the
// socket of the guest's `grus relay`, and "ivshmem:DEVICE@PATH" with the same socket, either of which can be left out.
struct Address {
  enum class Kind { unix_socket, tcp, vsock, virtio_serial, ivshmem };
  Kind kind = Kind::unix_socket;
  std::string path;  // or the host, or the number of the guest
  std::string port;  // or the shared-memory device: its PCI address, or a file; empty: the only one

  static Address parse(const std::string& text);  // throws std::invalid_argument, saying what is wrong with it
  std::string text() const;
  bool is_path() const { return kind != Kind::tcp && kind != Kind::vsock; }
};

// Where `grus serve` listens unless told: in the user's runtime folder.
Address default_address();

// Without a limit it takes as long as the system thinks it may. Throws Lost.
Descriptor connect_to(const Address& address, std::optional<std::chrono::milliseconds> limit = {});
Descriptor listen_at(const Address& address);                   // throws Lost
Address bound_at(const Descriptor& listening, Address wanted);  // with the port that the system chose for 0
Descriptor accept_from(const Descriptor& listening);

bool is_unix(const Descriptor& socket);
// Whether nobody on another host can get there, or answer from there.
bool is_loopback(const Address& address);
std::string other_side_of(const Descriptor& socket);  // its host and port
// Whether the other end of a Unix socket is a process of this user's, or of root's.
bool is_of_this_user(const Descriptor& socket);

}  // namespace grus::channel
