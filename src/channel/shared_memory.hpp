// Memory that the two ends of a channel on one host share: the rings that messages go through, a bulk area that
// transfers go through, and an arena in which objects live whose device works in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "channel/descriptor.hpp"

namespace grus::channel {

struct SharedSizes {
  std::uint64_t rings = 0;
  std::uint64_t bulk = 0;
  std::uint64_t arena = 0;

  std::uint64_t all() const { return rings + bulk + arena; }
};

class SharedMemory {
 public:
  // Null where the system has none to give.
  static std::shared_ptr<SharedMemory> make(const SharedSizes& sizes);
  static std::shared_ptr<SharedMemory> map(Descriptor file, const SharedSizes& sizes);
  // A part of a larger file, which is not this side's to shrink: pages are never given back.
  static std::shared_ptr<SharedMemory> map_part(int file, std::uint64_t offset, const SharedSizes& sizes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int descriptor() const { return file_.get(); }
  const SharedSizes& sizes() const { return sizes_; }
  std::byte* rings() const { return start_; }
  std::span<std::byte> bulk() const { return {start_ + sizes_.rings, sizes_.bulk}; }
  std::span<std::byte> arena() const { return {start_ + sizes_.rings + sizes_.bulk, sizes_.arena}; }
  // Gives the pages back to the system, if the file is this side's; they are zero from then on. Pages that are only
  // partly named stay.
  void forget(std::span<std::byte> range) const;
  // Whose end tells somebody that this memory is not used here any more.
  void hold(Descriptor sign) { sign_ = std::move(sign); }
  // What is there becomes this process's own; the other side's writes are not seen any more, nor its own by others.
  void leave();
  // In a forked child, which doesn't have the memory.
  void abandon() { sign_.reset(); }

 private:
  static std::byte* map_at(int file, std::uint64_t offset, const SharedSizes& sizes);  // null where it can't
  SharedMemory(Descriptor file, const SharedSizes& sizes, std::byte* start)
      : file_{std::move(file)}, sizes_{sizes}, start_{start} {}

  Descriptor file_;
  SharedSizes sizes_;
  std::byte* start_;
  Descriptor sign_{};
};

}  // namespace grus::channel
