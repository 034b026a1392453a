#include "executor/arena.hpp"

#include <new>

namespace grus {
namespace {

constexpr std::size_t kAlignment = 128;  // the largest OpenCL type, long16
// Larger blocks go back to the system when they are freed, as from the heap.
constexpr std::size_t kForgetFrom = std::size_t{32} << 20;

std::size_t rounded(std::size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

class Arena::Block final : public HostMemory {
 public:
  Block(std::shared_ptr<Arena> arena, std::byte* start, std::size_t size)
      : HostMemory{start, size}, arena_{std::move(arena)} {}
  ~Block() override { arena_->give_back(data(), size()); }

 private:
  const std::shared_ptr<Arena> arena_;
};

Arena::Arena(std::shared_ptr<channel::SharedMemory> memory) : memory_{std::move(memory)} {
  if (!memory_->arena().empty()) add_free(0, memory_->arena().size());
}

std::shared_ptr<HostMemory> Arena::take(std::size_t size) {
  const std::size_t needed = rounded(size);
  if (needed < size) throw std::bad_alloc{};
  std::size_t start = 0;
  {
    const std::lock_guard lock{mutex_};
    start = take_free(needed);
  }
  return std::make_shared<Block>(shared_from_this(), memory_->arena().data() + start, size);
}

// With the mutex.
std::size_t Arena::take_free(std::size_t size) {
  if (spare_.size == size) return std::exchange(spare_, {}).start;
  auto fits = by_size_.lower_bound({size, 0});
  if (fits == by_size_.end() && spare_.size != 0) {
    join_free(std::exchange(spare_, {}));
    fits = by_size_.lower_bound({size, 0});
  }
  if (fits == by_size_.end()) throw std::bad_alloc{};
  const auto [found, start] = *fits;
  remove_free(free_.find(start));
  if (found != size) add_free(start + size, found - size);
  return start;
}

bool Arena::has(const void* start, std::size_t size) const {
  const auto arena = memory_->arena();
  const auto offset = reinterpret_cast<std::uintptr_t>(start) - reinterpret_cast<std::uintptr_t>(arena.data());
  return offset < arena.size() && size <= arena.size() - offset;
}

void Arena::give_back(std::byte* start, std::size_t size) {
  if (size >= kForgetFrom) memory_->forget({start, size});
  const Stretch freed{static_cast<std::size_t>(start - memory_->arena().data()), rounded(size)};
  const std::lock_guard lock{mutex_};
  if (const Stretch before = std::exchange(spare_, freed); before.size != 0) join_free(before);
}

// With the mutex.
void Arena::join_free(Stretch freed) {
  auto [first, length] = freed;
  const auto next = free_.lower_bound(first);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      first = before->first;
      length += before->second;
      remove_free(before);
    }
  }
  if (next != free_.end() && next->first == first + length) {
    length += next->second;
    remove_free(next);
  }
  add_free(first, length);
}

void Arena::add_free(std::size_t start, std::size_t size) {
  free_.emplace(start, size);
  by_size_.emplace(size, start);
}

void Arena::remove_free(std::map<std::size_t, std::size_t>::iterator block) {
  by_size_.erase({block->second, block->first});
  free_.erase(block);
}

}  // namespace grus
