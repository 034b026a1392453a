// A ring whose other side writes what it likes into the state and the data, whenever it likes.
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "channel/ring.hpp"

namespace grus::channel {
namespace {

using namespace std::chrono_literals;

class Script {
 public:
  explicit Script(std::span<const unsigned char> bytes) : bytes_{bytes} {}
  bool is_over() const { return bytes_.empty(); }
  std::uint64_t take(std::size_t size) {
    std::uint64_t value = 0;
    for (; size != 0 && !bytes_.empty(); --size, bytes_ = bytes_.subspan(1)) value = value << 8 | bytes_.front();
    return value;
  }
  // Often close to where something ends.
  std::uint64_t take_index() {
    const std::uint64_t near[] = {0, kRingSize / 2, kRingSize, 2 * kRingSize, UINT64_MAX};
    const auto which = take(1);
    if (which >= std::size(near) * 16) return take(8);
    return near[which / 16] + take(1) - 128;
  }

 private:
  std::span<const unsigned char> bytes_;
};

// Reset for each run: making it takes longer than a run.
std::shared_ptr<SharedMemory> shared_memory() {
  static const auto memory = SharedMemory::make({kRingsSize, 0, 0});
  std::memset(memory->rings(), 0, 2 * sizeof(RingState));
  return memory;
}

// How the other side is woken: by descriptors that it has, too, or by bytes on the socket.
enum class Waking { descriptors, bytes };

// The other side's state, as the two sides see it.
void run(Script script, Waking waking) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  Descriptor other{ends[1]};
  const auto memory = shared_memory();
  auto* const states = reinterpret_cast<RingState*>(memory->rings());
  auto wakers =
      waking == Waking::bytes ? RingStream::Wakers::make_own(RingStream::Side::server) : RingStream::Wakers::make();
  const int waker = wakers.to_server.get();
  RingStream ring{RingStream::Side::server, memory, std::move(wakers), Descriptor{ends[0]}};
  static std::array<std::byte, 3 * kRingSize / 2> buffer;
  while (!script.is_over()) {
    const auto what = script.take(1);
    const std::size_t size = std::min<std::uint64_t>(script.take_index(), buffer.size());
    RingState& state = states[what / 16 % 2];
    switch (what % 8) {
      case 0:
        state.put = script.take_index();
        break;
      case 1:
        state.got = script.take_index();
        break;
      case 2:
        state.consumer_sleeps = static_cast<std::uint32_t>(script.take(1));
        state.producer_sleeps = static_cast<std::uint32_t>(script.take(1));
        break;
      case 3:
        if (ring.receive_some(buffer.data(), size) > size) std::abort();
        break;
      case 4: {
        iovec parts[2] = {{buffer.data(), size / 2}, {buffer.data() + size / 2, size - size / 2}};
        std::span<iovec> left{parts};
        ring.send_some(left);
        break;
      }
      case 5:
        ring.wait({.in = (what & 64) != 0, .out = (what & 128) != 0, .limit = 0ns});
        break;
      case 6:
        if (waking == Waking::descriptors) {
          eventfd_write(waker, 1);
        } else {
          const auto byte = static_cast<std::uint8_t>(what > 240 ? 'e' : what);
          (void)send(other.get(), &byte, sizeof byte, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        break;
      case 7:
        if (what > 250) other.reset();
        break;
    }
  }
}

}  // namespace
}  // namespace grus::channel

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    using grus::channel::Waking;
    grus::channel::run(grus::channel::Script{{data, size}}, size % 2 == 0 ? Waking::descriptors : Waking::bytes);
  } catch (const grus::channel::Lost&) {
  }
  return 0;
}
