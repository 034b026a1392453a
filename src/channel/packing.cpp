#include "channel/packing.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/lz4.hpp"

namespace grus::channel {
namespace {

constexpr double kWins = 0.9;  // of the time that the block would take as it is, at most
constexpr double kLatest = 0.3;
constexpr std::size_t kLongestPause = 1024;

}  // namespace

Packer::Use Packer::from_environment() {
  const char* const value = std::getenv("GRUS_COMPRESS");
  const std::string_view text = value ? value : "";
  return text == "always" ? Use::always : text == "1" ? Use::where_it_wins : Use::off;
}

void Packer::send(std::span<const std::byte> data, const Send& send_block) {
  for (std::size_t start = 0; start < data.size(); start += kBlock) {
    const auto block = data.subspan(start, std::min(kBlock, data.size() - start));
    const std::size_t packed = is_worth_it() ? pack(block) : 0;
    BlockSize size = static_cast<BlockSize>(packed != 0 ? packed : block.size());
    iovec parts[2] = {{&size, sizeof size},
                      {packed != 0 ? packed_.data() : const_cast<std::byte*>(block.data()), std::size_t{size}}};
    send_block(parts);
  }
}

// From what was learned; now and then one is tried, since data changes.
bool Packer::is_worth_it() {
  if (use_ == Use::always) return true;
  const auto rate = static_cast<double>(stream_.rate());
  if (rate <= 0) return false;
  if (rate / bytes_per_second_ + part_ < kWins) return true;
  // Packing alone takes longer than the link would.
  if (rate > bytes_per_second_ || ++paused_ < pause_) return false;
  paused_ = 0;
  pause_ = std::min(2 * pause_, kLongestPause);
  return true;
}

std::size_t Packer::pack(std::span<const std::byte> block) {
  const auto start = std::chrono::steady_clock::now();
  packed_.resize(kBlock);
  const std::size_t packed = lz4::pack(block, std::span{packed_}.first(block.size() - 1));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const auto size = static_cast<double>(block.size());
  const double part = packed != 0 ? static_cast<double>(packed) / size : 1;
  part_ += kLatest * (part - part_);
  if (took.count() > 0) bytes_per_second_ += kLatest * (size / took.count() - bytes_per_second_);
  return packed;
}

std::uint64_t delivery_rate(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return size >= offsetof(tcp_info, tcpi_delivery_rate) + sizeof info.tcpi_delivery_rate ? info.tcpi_delivery_rate : 0;
}

}  // namespace grus::channel
