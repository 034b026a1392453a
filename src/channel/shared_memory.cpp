#include "channel/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>

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

std::shared_ptr<SharedMemory> SharedMemory::map(Descriptor file, const SharedSizes& sizes) {
  void* const start =
      mmap(nullptr, sizes.all(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), /*offset=*/0);
  if (start == MAP_FAILED) return nullptr;
  madvise(start, sizes.all(), MADV_DONTFORK);
  return std::shared_ptr<SharedMemory>{new SharedMemory{std::move(file), sizes, static_cast<std::byte*>(start)}};
}

SharedMemory::~SharedMemory() { munmap(start_, sizes_.all()); }

void SharedMemory::forget(std::span<std::byte> range) const {
  const auto first = (static_cast<std::uint64_t>(range.data() - start_) + kPage - 1) / kPage * kPage;
  const auto last = static_cast<std::uint64_t>(range.data() + range.size() - start_) / kPage * kPage;
  if (first < last)
    (void)fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                    static_cast<off_t>(last - first));
}

}  // namespace grus::channel
