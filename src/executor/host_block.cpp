#include "executor/host_block.hpp"

#include <cstring>

#include "base/per_process.hpp"
#include "executor/copy_threads.hpp"

namespace grus {
namespace {

constexpr std::size_t kInParallelFrom = std::size_t{1} << 20;
constexpr unsigned kLeastCores = 4;  // with fewer, one thread is as fast

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, std::size_t size) {
  if (size >= kInParallelFrom) {
    auto& threads = of_this_process<CopyThreads>();
    if (threads.cores() >= kLeastCores) {
      CopyThreads::Part part;
      threads.start(part, to, from, size, CopyThreads::Stores::streaming);
      return threads.finish(part);
    }
  }
  if (size != 0) std::memcpy(to, from, size);
}

void copy_block(const HostBlock& to, const HostBlock& from) {
  if (to.is_packed() && from.is_packed()) return copy_bytes(to.start, from.start, from.size());
  for (std::size_t slice = 0; slice < from.slices; ++slice) {
    for (std::size_t number = 0; number < from.rows; ++number)
      std::memcpy(to.row_at(slice, number), from.row_at(slice, number), from.row);
  }
}

}  // namespace grus
