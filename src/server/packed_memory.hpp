// Memory that is kept for later, with LZ4: for when there is no room for it as it is. Blocks of zeroes take none.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace grus::server {

class PackedMemory {
 public:
  static constexpr std::size_t kBlock = std::size_t{1} << 20;

  // A block at a time, in order; all but the last are of kBlock bytes.
  void add(std::span<const std::byte> block);
  void unpack(std::size_t number, std::span<std::byte> to) const;  // of the size that was added

  std::size_t size() const { return size_; }  // bytes that it takes

 private:
  std::vector<std::vector<std::byte>> blocks_;  // empty: zeroes; of a block's own size: as it was
  std::size_t size_ = 0;
};

}  // namespace grus::server
