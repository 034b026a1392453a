#include "channel/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>

namespace grus::channel {
namespace {

constexpr std::uint64_t kPage = 4096;

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::make(const SharedSizes& sizes) {
  Descriptor file{memfd_create("grus", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  // A client that could make it smaller could make the server's accesses fail.
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(sizes.all())) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return nullptr;
  return map(std::move(file), sizes);
}

std::byte* SharedMemory::map_at(int file, std::uint64_t offset, const SharedSizes& sizes) {
  void* const start =
      mmap(nullptr, sizes.all(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, static_cast<off_t>(offset));
  if (start == MAP_FAILED) return nullptr;
  madvise(start, sizes.all(), MADV_DONTFORK);
  return static_cast<std::byte*>(start);
}

std::shared_ptr<SharedMemory> SharedMemory::map(Descriptor file, const SharedSizes& sizes) {
  std::byte* const start = map_at(file.get(), 0, sizes);
  if (!start) return nullptr;
  return std::shared_ptr<SharedMemory>{new SharedMemory{std::move(file), sizes, start}};
}

std::shared_ptr<SharedMemory> SharedMemory::map_part(int file, std::uint64_t offset, const SharedSizes& sizes) {
  std::byte* const start = map_at(file, offset, sizes);
  if (!start) return nullptr;
  return std::shared_ptr<SharedMemory>{new SharedMemory{{}, sizes, start}};
}

SharedMemory::~SharedMemory() { munmap(start_, sizes_.all()); }

void SharedMemory::leave() {
  void* const own =
      mmap(nullptr, sizes_.all(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (own == MAP_FAILED) return;
  std::memcpy(own, start_, sizes_.all());
  mremap(own, sizes_.all(), sizes_.all(), MREMAP_MAYMOVE | MREMAP_FIXED, start_);
}

void SharedMemory::forget(std::span<std::byte> range) const {
  const auto first = (static_cast<std::uint64_t>(range.data() - start_) + kPage - 1) / kPage * kPage;
  const auto last = static_cast<std::uint64_t>(range.data() + range.size() - start_) / kPage * kPage;
  if (first < last)
    (void)fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                    static_cast<off_t>(last - first));
}

}  // namespace grus::channel
