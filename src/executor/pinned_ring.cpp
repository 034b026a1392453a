#include "executor/pinned_ring.hpp"

#include <sys/mman.h>

#include "base/log.hpp"
#include "executor/vendor.hpp"

namespace grus {

std::unique_ptr<PinnedMemory> PinnedMemory::make(cl_context context, std::size_t size) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  // A forked child must not share these pages: the first write after a fork would move the parent's copy away from
  // where the device looks for it.
  madvise(data, size, MADV_DONTFORK);
  madvise(data, size, MADV_HUGEPAGE);
  std::unique_ptr<PinnedMemory> memory{new PinnedMemory{static_cast<std::byte*>(data), size}};
  cl_int code = CL_SUCCESS;
  memory->buffer_ =
      functions(context).clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size, data, &code);
  if (memory->buffer_) return memory;
  log::info("staging", "no {} bytes of pinned memory (OpenCL error {})", size, code);
  return nullptr;
}

PinnedMemory::~PinnedMemory() {
  if (buffer_) functions(buffer_).clReleaseMemObject(buffer_);
  munmap(data_, size_);
}

PinnedRing::PinnedRing(std::unique_ptr<PinnedMemory> memory, std::size_t slot_size) : memory_{std::move(memory)} {
  std::byte* next = memory_->data();
  for (Slot& slot : slots_) {
    slot.memory = next;
    next += slot_size;
  }
}

PinnedRings::PinnedRings(cl_context context, std::size_t slot_size) : context_{context}, slot_size_{slot_size} {
  free_.reserve(kMostRings);
}

PinnedRings::Lent PinnedRings::borrow() {
  {
    const std::lock_guard lock{mutex_};
    if (!free_.empty()) {
      Lent lent{free_.back().release(), {this}};
      free_.pop_back();
      return lent;
    }
    if (made_ == kMostRings || !can_be_made_) return {};
    ++made_;
  }
  auto memory = PinnedMemory::make(context_, PinnedRing::kSlots * slot_size_);
  if (memory) return Lent{new PinnedRing{std::move(memory), slot_size_}, {this}};
  const std::lock_guard lock{mutex_};
  --made_;
  can_be_made_ = false;  // trying again with each copy would cost more than staging gains
  return {};
}

void PinnedRings::give_back(PinnedRing* ring) {
  const std::lock_guard lock{mutex_};
  free_.emplace_back(ring);
}

}  // namespace grus
