#include "base/lz4.hpp"

#include <lz4.h>

namespace grus::lz4 {

std::size_t pack(std::span<const std::byte> from, std::span<std::byte> to) {
  return static_cast<std::size_t>(LZ4_compress_default(reinterpret_cast<const char*>(from.data()),
                                                       reinterpret_cast<char*>(to.data()),
                                                       static_cast<int>(from.size()), static_cast<int>(to.size())));
}

bool unpack(std::span<const std::byte> from, std::span<std::byte> to) {
  return LZ4_decompress_safe(reinterpret_cast<const char*>(from.data()), reinterpret_cast<char*>(to.data()),
                             static_cast<int>(from.size()), static_cast<int>(to.size())) == static_cast<int>(to.size());
}

}  // namespace grus::lz4
