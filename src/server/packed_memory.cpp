#include "server/packed_memory.hpp"

#include <lz4.h>

#include <algorithm>
#include <stdexcept>

namespace grus::server {
namespace {

bool is_zero(std::span<const std::byte> block) {
  return block.empty() || (block[0] == std::byte{0} && std::equal(block.begin() + 1, block.end(), block.begin()));
}

const char* chars(const std::byte* bytes) { return reinterpret_cast<const char*>(bytes); }

}  // namespace

void PackedMemory::add(std::span<const std::byte> block) {
  std::vector<std::byte>& packed = blocks_.emplace_back();
  if (is_zero(block)) return;
  packed.resize(block.size());
  // What becomes no smaller doesn't fit in, and stays as it is.
  const int size = LZ4_compress_default(chars(block.data()), reinterpret_cast<char*>(packed.data()),
                                        static_cast<int>(block.size()), static_cast<int>(block.size()) - 1);
  if (size > 0) {
    packed.resize(static_cast<std::size_t>(size));
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
  } else if (LZ4_decompress_safe(chars(packed.data()), reinterpret_cast<char*>(to.data()),
                                 static_cast<int>(packed.size()),
                                 static_cast<int>(to.size())) != static_cast<int>(to.size())) {
    throw std::logic_error{"packed memory is of another size"};
  }
}

}  // namespace grus::server
