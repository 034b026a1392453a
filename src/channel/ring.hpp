// A stream through shared memory: two rings, one for each direction, each with one producer and one consumer. Who finds
// nothing to do sleeps, and is woken only then: a busy channel makes no system calls. The socket that the two sides met
// on stays open; its end is the end of the stream. Between a guest and its host that socket is also what wakes: a byte,
// which is dear, for it leaves the guest. So whoever finds nothing to do there looks again a few times before it
// sleeps.
#pragma once

#include <atomic>
#include <cstdint>

#include "channel/shared_memory.hpp"
#include "channel/stream.hpp"

namespace grus::channel {

struct RingState {
  alignas(64) std::atomic<std::uint64_t> put;  // bytes so far
  alignas(64) std::atomic<std::uint64_t> got;
  alignas(64) std::atomic<std::uint32_t> consumer_sleeps;
  alignas(64) std::atomic<std::uint32_t> producer_sleeps;
};

inline constexpr std::size_t kRingSize = std::size_t{1} << 20;
inline constexpr std::size_t kRingsSize = 2 * (sizeof(RingState) + kRingSize) / 4096 * 4096 + 4096;

class RingStream final : public Stream {
 public:
  enum class Side { server, client };
  // Descriptors that wake who sleeps, for each direction: something has come, and something was taken. If the other
  // side can't have them, a byte on the socket is for both.
  struct Wakers {
    Descriptor to_server;
    Descriptor room_to_server;
    Descriptor to_client;
    Descriptor room_to_client;
    static Wakers make();
    static Wakers make_own(Side side);  // and none for the other side
  };

  RingStream(Side side, std::shared_ptr<SharedMemory> memory, Wakers wakers, Descriptor socket);

  void send_some(std::span<iovec>& parts) override;
  std::size_t receive_some(void* to, std::size_t size) override;
  Ready wait(const Wish& wish) override;
  void wait_for_end() override;
  void shut() override;
  void abandon() override;
  bool is_awake() const override { return out_.state->consumer_sleeps.load(std::memory_order_relaxed) == 0; }

  // How long to look again and again before sleeping: for hosts with cores to spare.
  void spin_for(std::chrono::nanoseconds time) { spin_ = time; }

 private:
  struct Ring {
    RingState* state;
    std::byte* data;
    int data_waker;
    int room_waker;
  };
  struct Polled {
    bool data = false;
    bool also = false;
  };

  bool has_data() const;
  bool has_room() const;
  std::uint64_t data_in() const;  // only of who receives: to others, it changes while they look
  bool is_ready(const Wish& wish) const { return (wish.in && has_data()) || (wish.out && has_room()); }
  void wake(std::atomic<std::uint32_t>& sleeps, int waker);
  Polled poll_for(const Wish& wish, const std::optional<std::chrono::nanoseconds>& limit);
  bool send_byte(std::uint8_t byte) const;
  void take_bytes();
  void spin(const Wish& wish) const;
  bool nap(const Wish& wish);
  void drop_stale_wake();

  const Side side_;
  const std::shared_ptr<SharedMemory> memory_;
  Wakers wakers_;
  const bool wakes_by_bytes_;
  Descriptor socket_;
  Ring out_;
  Ring in_;
  // The other side could write anything into the state: what is one's own is remembered here.
  std::atomic<std::uint64_t> put_{0};
  std::atomic<std::uint64_t> got_{0};
  std::atomic<bool> ended_{false};
  std::chrono::nanoseconds spin_{0};
};

}  // namespace grus::channel
