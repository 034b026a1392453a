// A file in which a suspended session's objects keep what they hold, so that they need no host memory. It is there for
// as long as the session is suspended, and no longer than the program, unless that is killed.
#pragma once

#include <mutex>
#include <string>

#include "channel/descriptor.hpp"

namespace grus::move {

// All but the destructor throw Refused.
class ShelfFile {
 public:
  explicit ShelfFile(std::string path);
  ~ShelfFile();
  ShelfFile(const ShelfFile&) = delete;
  ShelfFile& operator=(const ShelfFile&) = delete;

  std::uint64_t reserve(std::size_t size);  // where there is room from here on: zeroes
  void release(std::uint64_t place, std::size_t size) noexcept;
  void read(std::uint64_t place, std::byte* to, std::size_t size) const;
  void write(std::uint64_t place, const std::byte* from, std::size_t size);
  void flush();  // all that was written is on the disk, and not in memory

 private:
  [[noreturn]] void fail(int error) const;

  const std::string path_;
  const channel::Descriptor file_;
  std::mutex mutex_;  // guards end_
  std::uint64_t end_ = 0;
};

}  // namespace grus::move
