#include "executor/host_block.hpp"

#include <cstring>
#include <utility>

#include "base/per_process.hpp"

namespace grus {
namespace {

constexpr std::size_t kInParallelFrom = std::size_t{1} << 20;

}  // namespace

void CopyBeside::start(std::byte* to, const std::byte* from, std::size_t size, CopyThreads::Stores stores) {
  finish();
  if (size >= kInParallelFrom) {
    auto& threads = of_this_process<CopyThreads>();
    if (threads.cores() >= CopyThreads::kLeastCores) {
      is_started_ = true;
      return threads.start(part_, to, from, size, stores);
    }
  }
  if (size != 0) std::memcpy(to, from, size);
}

void CopyBeside::finish() {
  if (std::exchange(is_started_, false)) of_this_process<CopyThreads>().finish(part_);
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t size) {
  CopyBeside copy;
  copy.start(to, from, size, CopyThreads::Stores::streaming);
}

void copy_block(const HostBlock& to, const HostBlock& from) {
  if (to.is_packed() && from.is_packed()) return copy_bytes(to.start, from.start, from.size());
  for (std::size_t slice = 0; slice < from.slices; ++slice) {
    for (std::size_t number = 0; number < from.rows; ++number)
      std::memcpy(to.row_at(slice, number), from.row_at(slice, number), from.row);
  }
}

}  // namespace grus
