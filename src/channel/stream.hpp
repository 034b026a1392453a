// Bytes that arrive whole and in order, or not at all: over a socket, or through shared memory (ring.hpp).
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "channel/descriptor.hpp"

namespace grus::channel {

// The other side is gone, or was never there. what() says so to a person.
struct Lost : std::runtime_error {
  enum class How { unknown, closed, refused };
  explicit Lost(const std::string& why, How how_ = How::unknown) : std::runtime_error{why}, how{how_} {}
  How how;  // closed, or refused, by the other side's system: it can be reached
};

// One thread sends at a time and one receives; any may wait. All of it throws Lost.
class Stream {
 public:
  struct Wish {
    bool in = false;
    bool out = false;
    int also = -1;      // a descriptor to be read from
    bool ends = false;  // to know when the connection ends, whatever else is wished
    std::optional<std::chrono::nanoseconds> limit{};
  };
  struct Ready {
    bool in = false;
    bool out = false;
    bool also = false;
    bool ended = false;
  };

  virtual ~Stream() = default;
  // Sends what is taken at once; the rest is what is left of the parts.
  virtual void send_some(std::span<iovec>& parts) = 0;
  // Receives what has come, or 0 if nothing has.
  virtual std::size_t receive_some(void* to, std::size_t size) = 0;
  // Waits until something has come, and best until much has.
  virtual std::size_t receive_much(void* to, std::size_t size);
  virtual Ready wait(const Wish& wish) = 0;
  // Throws Lost once the other side is gone for good, whatever it sent before that nobody has received. Wakes for
  // nothing else.
  virtual void wait_for_end() = 0;
  // Ends it for both sides; whoever waits for more gets Lost.
  virtual void shut() = 0;
  // In a forked child: lets go of it; the parent's goes on.
  virtual void abandon() = 0;

  // The last so many bytes that were sent may not have come to the other side's system yet.
  virtual std::size_t outstanding() const { return 0; }
  // Bytes per second that the other side takes; 0: not known, or as fast as memory is.
  virtual std::uint64_t rate() const { return 0; }
  // Whether the other side is known to be at work, so that it needn't be woken for what comes next.
  virtual bool is_awake() const { return false; }
  // The memory of all that was sent may change from here on.
  virtual void let_go() {}

  void send(std::span<iovec> parts);
};

class SocketStream final : public Stream {
 public:
  explicit SocketStream(Descriptor socket);

  void send_some(std::span<iovec>& parts) override;
  std::size_t receive_some(void* to, std::size_t size) override { return receive(to, size, MSG_DONTWAIT); }
  std::size_t receive_much(void* to, std::size_t size) override;
  Ready wait(const Wish& wish) override;
  void wait_for_end() override;
  void shut() override;
  void abandon() override { socket_.reset(); }
  std::size_t outstanding() const override;
  std::uint64_t rate() const override;

 private:
  std::size_t receive(void* to, std::size_t size, int flags);
  void wake_for(int bytes);  // who waits

  Descriptor socket_;
};

// Moves on behind what was sent.
void skip(std::span<iovec>& parts, std::size_t sent);

// For all streams over sockets.
void set_up_socket(int socket);
Stream::Ready wait_for_socket(int socket, const Stream::Wish& wish);
[[noreturn]] void wait_for_end_of(int socket);
Lost lost_by(int error);  // of the system

}  // namespace grus::channel
