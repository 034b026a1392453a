// A stream that outlives its connection. What was sent is kept until it has come to the other side's system, which
// hands out all that came before it says that a connection is lost; a new one goes on where the old one was, and nobody
// but the clock notices.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "channel/stream.hpp"

namespace grus::channel {

class LastingStream final : public Stream {
 public:
  struct Connected {
    std::unique_ptr<Stream> stream;
    std::uint64_t received = 0;  // by the other side, of all that was ever sent
  };
  // Connects again, and tells the other side how much has come. Throws Lost if that can't be.
  using Reconnect = std::function<Connected(std::uint64_t received, const Lost& why)>;

  LastingStream(std::unique_ptr<Stream> first, Reconnect reconnect);

  void send_some(std::span<iovec>& parts) override;
  std::size_t receive_some(void* to, std::size_t size) override;
  std::size_t receive_much(void* to, std::size_t size) override;
  Ready wait(const Wish& wish) override;
  void wait_for_end() override;
  void shut() override;
  void abandon() override;

  std::uint64_t rate() const override { return current()->rate(); }
  void let_go() override;

  // There is a better connection, which offer() makes known to who connects again. It is taken at once: whoever uses
  // the stream may be busy elsewhere for long.
  void renew(const std::function<void()>& offer);

 private:
  // A stretch of what was sent, in the sender's memory or kept here.
  struct Sent {
    std::uint64_t start = 0;
    const std::byte* data = nullptr;
    std::size_t size = 0;
    std::vector<std::byte> own;
  };

  void check_open() const;
  std::shared_ptr<Stream> current() const;
  template <typename Try>
  auto lasting(Try attempt);
  void note(const Lost& why);
  void drain(Stream& stream);
  void forget_what_came(const Stream& stream);
  std::size_t take_drained(void* to, std::size_t size);
  void mend(const std::shared_ptr<Stream>& broken, const Lost& why);
  void replace(Connected connected);
  bool send_again(Stream& stream);

  const Reconnect reconnect_;
  mutable std::shared_mutex current_mutex_;  // shared while one sends or receives; guards what follows
  std::shared_ptr<Stream> current_;
  std::string ended_;               // why, once it can't be mended
  std::uint64_t received_ = 0;      // changed by who receives
  std::vector<std::byte> drained_;  // from connections that were lost, not received yet
  std::atomic<bool> has_drained_{false};
  std::atomic<bool> closed_{false};

  std::mutex sent_mutex_;                      // guards what follows
  std::deque<Sent> sent_;                      // that may not have come
  std::vector<std::vector<std::byte>> spare_;  // memory that was used for it, for the next
  std::uint64_t sent_so_far_ = 0;
  std::uint64_t again_from_ = 0;  // what comes from there on is to be sent again, up to sent_so_far_
  std::optional<Lost> why_;       // the current connection was lost
  std::atomic<bool> sends_again_{false};
};

}  // namespace grus::channel
