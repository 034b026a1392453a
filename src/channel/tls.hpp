// A stream over a socket that nobody else can read, or write into, and whose other end is who it says (TLS 1.3).
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "channel/keys.hpp"
#include "channel/stream.hpp"

struct bio_st;
struct bio_method_st;
struct ssl_st;

namespace grus::channel {

class TlsStream final : public Stream {
 public:
  using Clock = std::chrono::steady_clock;

  // A client says which server it expects: a name, or an address in figures.
  TlsStream(Descriptor socket, std::shared_ptr<const Keys> keys, const std::string& server = {});
  ~TlsStream() override;

  // Sends what there is to say before the other side does, and receives nothing.
  void begin_handshake();
  // Throws Lost, with what the other side can't show.
  void finish_handshake(Clock::time_point until);
  // The name in the other side's certificate; empty if it has none.
  std::string other_side() const;
  // What only the two sides can know.
  Secret secret() const;
  // Ends TLS and gives the socket back, for something else to be said there. Throws Lost if that has begun already.
  Descriptor release();

  void send_some(std::span<iovec>& parts) override;
  std::size_t receive_some(void* to, std::size_t size) override;
  Ready wait(const Wish& wish) override;
  void wait_for_end() override;
  void shut() override;
  void abandon() override { socket_.reset(); }
  std::size_t outstanding() const override;
  std::uint64_t rate() const override;

 private:
  // A record can only be read when all of it has come.
  struct Record {
    std::uint64_t end = 0;  // in all that was sent on the socket
    std::size_t size = 0;   // of what is in it
  };
  enum class Direction { in, out };

  static const bio_method_st* socket_method();
  static int read_socket(bio_st* bio, char* to, std::size_t size, std::size_t* received);
  static int write_socket(bio_st* bio, const char* from, std::size_t size, std::size_t* sent);

  // All of them with mutex_.
  bool has_data() const;
  void stage(std::span<const iovec> parts);
  bool must_wait(int code, Direction direction);
  [[noreturn]] void fail();
  std::uint64_t came_so_far() const;

  const std::shared_ptr<const Keys> keys_;
  Descriptor socket_;
  mutable std::mutex mutex_;  // guards what follows; never held while waiting
  ssl_st* ssl_ = nullptr;
  const std::unique_ptr<std::byte[]> ahead_;  // from the socket, not taken by OpenSSL yet: first_ to last_
  std::size_t first_ = 0;
  std::size_t last_ = 0;
  std::vector<std::byte> record_;  // what is being sent, of which OpenSSL wants to see the same again
  std::size_t staged_ = 0;
  std::uint64_t sent_ = 0;      // bytes on the socket
  std::deque<Record> records_;  // that may not have come
  std::uint64_t records_with_key_ = 0;
  bool only_sends_ = false;
  bool receiving_needs_room_ = false;  // handshakes may come later, too
  bool sending_needs_data_ = false;
  std::optional<Lost> lost_;
};

}  // namespace grus::channel
