// Data on its way through a link that is slower than packing it: in blocks, each of which goes packed or as it is,
// whichever is faster.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "channel/stream.hpp"

namespace grus::channel {

// What a block begins with: the bytes that follow. As many as the block has: it goes as it is.
using BlockSize = std::uint32_t;
inline constexpr std::size_t kBlock = std::size_t{256} << 10;  // all but the last
inline constexpr std::size_t kInBlocksFrom = 64 * 1024;        // smaller data is sent without any

class Packer {
 public:
  // Whether GRUS_COMPRESS asks for it: `1` where it wins, `always` for tests.
  enum class Use : std::uint8_t { off, where_it_wins, always };
  static Use from_environment();

  Packer(Stream& stream, Use use) : stream_{stream}, use_{use} {}

  // Calls for each block, with what is to be sent of it.
  using Send = std::function<void(std::span<iovec>)>;
  void send(std::span<const std::byte> data, const Send& send_block);

 private:
  bool is_worth_it();
  std::size_t pack(std::span<const std::byte> block);  // into packed_; 0: it got no smaller

  Stream& stream_;
  const Use use_;
  std::vector<std::byte> packed_;
  // As it was of late.
  double bytes_per_second_ = 5e8;  // of packing
  double part_ = 0.5;              // that was left
  std::size_t pause_ = 32;         // blocks that go as they are until another one is tried
  std::size_t paused_ = 0;
};

// Bytes per second that a TCP socket's other side takes, as the system knows; 0 if it doesn't.
std::uint64_t delivery_rate(int socket);

}  // namespace grus::channel
