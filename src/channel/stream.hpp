// A connected socket: bytes that arrive whole and in order, or not at all.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

namespace grus::channel {

// The other side is gone, or was never there. what() says so to a person.
struct Lost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_{value} {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : value_{other.release()} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = other.release();
    }
    return *this;
  }
  int get() const { return value_; }
  int release() {
    const int value = value_;
    value_ = -1;
    return value;
  }
  void reset();

 private:
  int value_ = -1;
};

class Stream {
 public:
  explicit Stream(Descriptor socket);

  int descriptor() const { return socket_.get(); }
  // Sends all of it, in one go where the kernel takes it. All of these throw Lost.
  void send(std::span<iovec> parts) const;
  // Sends what the kernel takes now; the rest is what is left of the parts.
  void send_some(std::span<iovec>& parts) const;
  void receive(void* to, std::size_t size) const;
  // Ends it for both sides; whoever is waiting in receive() gets Lost.
  void shut() const;

 private:
  Descriptor socket_;
};

// Where a server is: "unix:PATH", or "tcp:HOST:PORT".
struct Address {
  enum class Kind { unix_socket, tcp };
  Kind kind = Kind::unix_socket;
  std::string path;  // or the host
  std::string port;

  static Address parse(const std::string& text);  // throws std::invalid_argument, saying what is wrong with it
  std::string text() const;
};

// Where `grus serve` listens unless told: in the user's runtime folder.
Address default_address();

Stream connect(const Address& address);  // throws Lost
// Whether the other end of a Unix socket is a process of this user's, or of root's.
bool is_of_this_user(const Stream& stream);
Descriptor listen_at(const Address& address);                   // throws Lost
Address bound_at(const Descriptor& listening, Address wanted);  // with the port that the system chose for 0
Descriptor accept_from(const Descriptor& listening);

}  // namespace grus::channel
