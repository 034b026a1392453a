// Which pages of this process's memory were written, as the system's own kernel tells it: by userfaultfd's asynchronous
// write protection and PAGEMAP_SCAN, which Linux has since 6.7. It is about writes through this process's page tables,
// by its threads or by system calls.
#pragma once

#include <memory>
#include <vector>

#include "objects/memory.hpp"

namespace grus::memory {

class PageWatch {
 public:
  // Smaller ones are compared as quickly.
  static constexpr std::size_t kWatchedFrom = std::size_t{128} << 10;

  PageWatch();
  ~PageWatch();
  PageWatch(const PageWatch&) = delete;
  PageWatch& operator=(const PageWatch&) = delete;

  bool can_watch() const { return faults_ >= 0 && pages_ >= 0; }
  int faults() const { return faults_; }
  int pages() const { return pages_; }

 private:
  int faults_ = -1;  // a userfaultfd
  int pages_ = -1;   // /proc/self/pagemap
};

// Whether this system can, found out by trying.
bool system_watches_pages();

class WrittenPages {
 public:
  // Null if the system refuses.
  static std::unique_ptr<WrittenPages> of(std::shared_ptr<PageWatch> watch, std::shared_ptr<HostMemory> memory);
  ~WrittenPages();
  WrittenPages(const WrittenPages&) = delete;
  WrittenPages& operator=(const WrittenPages&) = delete;

  // What may have been written since it was asked last: parts of the memory, in order. At first, all of it. What is
  // written while this goes on is told now or the next time. Throws std::runtime_error.
  std::vector<Range> take();

 private:
  WrittenPages(std::shared_ptr<PageWatch> watch, std::shared_ptr<HostMemory> memory);

  const std::shared_ptr<PageWatch> watch_;
  const std::shared_ptr<HostMemory> memory_;
  // Pages that are all its own. What is before and behind shares a page with others, and counts as written.
  std::uintptr_t first_ = 0;
  std::uintptr_t last_ = 0;
  bool is_first_time_ = true;
};

}  // namespace grus::memory
