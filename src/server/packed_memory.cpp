#include "server/packed_memory.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/lz4.hpp"

namespace grus::server {
namespace {

bool is_zero(std::span<const std::byte> block) {
  return block.empty() || (block[0] == std::byte{0} && std::equal(block.begin() + 1, block.end(), block.begin()));
}

}  // namespace

void PackedMemory::add(std::span<const std::byte> block) {
  std::vector<std::byte>& packed = blocks_.emplace_back();
  if (is_zero(block)) return;
  packed.resize(block.size());
  // What becomes no smaller doesn't fit in, and stays as it is.
  if (const std::size_t size = lz4::pack(block, std::span{packed}.first(block.size() - 1)); size != 0) {
    packed.resize(size);
    packed.shrink_to_fit();
  } else {
    std::copy(block.begin(), block.end(), packed.begin());
  }
  size_ += packed.size();
}

void PackedMemory::unpack(std::size_t number, std::span<std::byte> to) const {
  const std::vector<std::byte>& packed = blocks_.at(number);
  if (packed.empty()) {
    std::fill(to.begin(), to.end(), std::byte{0});
  } else if (packed.size() == to.size()) {
    std::copy(packed.begin(), packed.end(), to.begin());
  } else if (!lz4::unpack(packed, to)) {
    throw std::logic_error{"packed memory is of another size"};
  }
}

}  // namespace grus::server
