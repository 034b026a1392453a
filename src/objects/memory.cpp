#include "objects/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace grus {
namespace {

constexpr std::size_t kMapFrom = 128 * 1024;
constexpr std::size_t kAlignment = 128;  // the largest OpenCL type, long16

std::byte* allocate(std::size_t size) {
  if (size > SIZE_MAX - kAlignment) throw std::bad_alloc{};
  void* const memory = std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (!memory) throw std::bad_alloc{};
  return static_cast<std::byte*>(memory);
}

std::byte* map_pages(std::size_t size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc{};
  return static_cast<std::byte*>(memory);
}

struct HeapMemory final : HostMemory {
  explicit HeapMemory(std::size_t size) : HostMemory{allocate(size), size} {}
  ~HeapMemory() override { std::free(data()); }
};

struct Pages final : HostMemory {
  explicit Pages(std::size_t size) : HostMemory{map_pages(size), size} {}
  ~Pages() override { munmap(data(), size()); }
};

}  // namespace

std::shared_ptr<HostMemory> memory_from_heap(std::size_t size) { return std::make_shared<HeapMemory>(size); }

std::shared_ptr<HostMemory> memory_in_pages(std::size_t size) {
  if (size < kMapFrom) return memory_from_heap(size);
  return std::make_shared<Pages>(size);
}

Triple ImageFacts::extent() const {
  switch (desc.image_type) {
    case CL_MEM_OBJECT_IMAGE1D:
    case CL_MEM_OBJECT_IMAGE1D_BUFFER:
      return {desc.image_width, 1, 1};
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
      return {desc.image_width, desc.image_array_size, 1};
    case CL_MEM_OBJECT_IMAGE2D:
      return {desc.image_width, desc.image_height, 1};
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
      return {desc.image_width, desc.image_height, desc.image_array_size};
    default:
      return {desc.image_width, desc.image_height, desc.image_depth};
  }
}

Memory::~Memory() {
  BelowSeam& below = *context->below.load(std::memory_order_relaxed);
  // They are called when the vendor is done with the object.
  if (created && !gone_callbacks.empty()) {
    below.when_memory_is_gone(id(), [calls = std::move(gone_callbacks)] {
      std::for_each(calls.rbegin(), calls.rend(), [](const auto& call) { call(); });
    });
  }
  if (created) below.free(ObjectType::memory, id());
  // A region that the executor doesn't know, for it came with a move: commands may still read it.
  if (is_region && !created && host_memory) below.keep_while_busy(std::move(host_memory));
}

Mapping* Memory::unmap(const void* pointer) {
  const std::lock_guard guard{lock};
  for (const auto& mapping : mappings) {
    if (!pointer || mapping->pointer != pointer) continue;
    mapping->pointer = nullptr;
    map_count.fetch_sub(1, std::memory_order_relaxed);
    return mapping.get();
  }
  return nullptr;
}

void Memory::take_back(Mapping& mapping) {
  const std::lock_guard guard{lock};
  mapping.pointer = nullptr;
  map_count.fetch_sub(1, std::memory_order_relaxed);
  mapping.is_free.store(true, std::memory_order_release);
}

void Memory::set_mapped(Mapping& mapping, std::byte* pointer) {
  const std::lock_guard guard{lock};
  mapping.pointer = pointer;
  map_count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace grus
