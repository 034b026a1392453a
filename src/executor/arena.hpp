// Shared memory that objects live in, handed out in blocks.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "channel/shared_memory.hpp"
#include "objects/memory.hpp"

namespace grus {

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  explicit Arena(std::shared_ptr<channel::SharedMemory> memory);

  std::shared_ptr<HostMemory> take(std::size_t size);  // throws std::bad_alloc
  bool has(const void* start, std::size_t size) const;
  // As the other side of the channel knows it.
  std::uint64_t place_of(const void* start) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(start) - memory_->rings());
  }

 private:
  class Block;
  struct Stretch {
    std::size_t start = 0;
    std::size_t size = 0;
  };
  std::size_t take_free(std::size_t size);
  void join_free(Stretch freed);
  void give_back(std::byte* start, std::size_t size);
  void add_free(std::size_t start, std::size_t size);
  void remove_free(std::map<std::size_t, std::size_t>::iterator block);

  const std::shared_ptr<channel::SharedMemory> memory_;
  std::mutex mutex_;                                       // guards what follows
  Stretch spare_;                                          // freed last: the next is often as large
  std::map<std::size_t, std::size_t> free_;                // sizes by start
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  // size, start
};

}  // namespace grus
