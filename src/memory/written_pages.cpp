#include "memory/written_pages.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/log.hpp"

namespace grus::memory {
namespace {

// From Linux 6.7's headers: older ones lack them.
constexpr std::uint64_t kWriteProtectAsync = 1 << 15;  // UFFD_FEATURE_WP_ASYNC
constexpr int kUserModeOnly = 1;                       // UFFD_USER_MODE_ONLY: needs no privilege
struct ScannedPages {                                  // struct page_region
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t categories = 0;
};
struct Scan {  // struct pm_scan_arg
  std::uint64_t size = sizeof(Scan);
  std::uint64_t flags = 0;
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t walk_end = 0;
  std::uint64_t found = 0;
  std::uint64_t found_count = 0;
  std::uint64_t max_pages = 0;
  std::uint64_t category_inverted = 0;
  std::uint64_t category_mask = 0;
  std::uint64_t category_anyof_mask = 0;
  std::uint64_t return_mask = 0;
};
constexpr auto kScan = _IOWR('f', 16, Scan);        // PAGEMAP_SCAN
constexpr std::uint64_t kIsWritten = 1 << 1;        // PAGE_IS_WRITTEN
constexpr std::uint64_t kProtectFound = 1 << 0;     // PM_SCAN_WP_MATCHING
constexpr std::uint64_t kCheckProtection = 1 << 1;  // PM_SCAN_CHECK_WPASYNC

std::uintptr_t page_size() {
  static const auto s_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return s_size;
}

int open_faults() {
  const auto faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly));
  if (faults < 0) return -1;
  uffdio_api api{UFFD_API, kWriteProtectAsync, 0};
  if (ioctl(faults, UFFDIO_API, &api) == 0) return faults;
  close(faults);
  return -1;
}

bool tries_well() {
  const std::size_t page = page_size();
  const auto memory = memory_in_pages(PageWatch::kWatchedFrom);
  std::memset(memory->data(), 1, memory->size());
  const auto written = WrittenPages::of(std::make_shared<PageWatch>(), memory);
  if (!written) return false;
  (void)written->take();
  memory->data()[page + 1] = std::byte{2};
  const auto found = written->take();
  return found.size() == 1 && found[0].offset == page && found[0].size == page && written->take().empty();
}

}  // namespace

PageWatch::PageWatch() : faults_{open_faults()}, pages_{open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)} {}

PageWatch::~PageWatch() {
  if (faults_ >= 0) close(faults_);
  if (pages_ >= 0) close(pages_);
}

bool system_watches_pages() {
  static const bool s_does = [] {
    try {
      return tries_well();
    } catch (const std::exception&) {
      return false;
    }
  }();
  return s_does;
}

WrittenPages::WrittenPages(std::shared_ptr<PageWatch> watch, std::shared_ptr<HostMemory> memory)
    : watch_{std::move(watch)}, memory_{std::move(memory)} {
  const auto start = reinterpret_cast<std::uintptr_t>(memory_->data());
  first_ = (start + page_size() - 1) / page_size() * page_size();
  last_ = (start + memory_->size()) / page_size() * page_size();
}

std::unique_ptr<WrittenPages> WrittenPages::of(std::shared_ptr<PageWatch> watch, std::shared_ptr<HostMemory> memory) {
  if (!watch->can_watch() || memory->size() < PageWatch::kWatchedFrom) return nullptr;
  std::unique_ptr<WrittenPages> made{new WrittenPages{std::move(watch), std::move(memory)}};
  uffdio_register order{{made->first_, made->last_ - made->first_}, UFFDIO_REGISTER_MODE_WP, 0};
  if (ioctl(made->watch_->faults(), UFFDIO_REGISTER, &order) != 0) return nullptr;
  return made;
}

WrittenPages::~WrittenPages() {
  uffdio_range range{first_, last_ - first_};
  (void)ioctl(watch_->faults(), UFFDIO_UNREGISTER, &range);
}

std::vector<Range> WrittenPages::take() {
  const auto start = reinterpret_cast<std::uintptr_t>(memory_->data());
  const std::uintptr_t end = start + memory_->size();
  if (std::exchange(is_first_time_, false)) {
    uffdio_writeprotect order{{first_, last_ - first_}, UFFDIO_WRITEPROTECT_MODE_WP};
    if (ioctl(watch_->faults(), UFFDIO_WRITEPROTECT, &order) != 0)
      throw std::runtime_error{fmt::format("memory can't be watched: {}", std::strerror(errno))};
    return {{0, memory_->size()}};
  }
  std::vector<Range> written;
  const auto add = [&](std::uintptr_t from, std::uintptr_t to) {
    if (from == to) return;
    if (!written.empty() && start + written.back().offset + written.back().size == from) {
      written.back().size += to - from;
    } else {
      written.push_back({from - start, to - from});
    }
  };
  add(start, first_);
  std::array<ScannedPages, 512> found{};
  for (std::uintptr_t next = first_; next < last_;) {
    Scan scan;
    scan.flags = kProtectFound | kCheckProtection;
    scan.start = next;
    scan.end = last_;
    scan.found = reinterpret_cast<std::uintptr_t>(found.data());
    scan.found_count = found.size();
    scan.category_mask = kIsWritten;
    scan.return_mask = kIsWritten;
    const int count = ioctl(watch_->pages(), kScan, &scan);
    if (count < 0 || scan.walk_end <= next)
      throw std::runtime_error{fmt::format("the system doesn't tell what was written: {}", std::strerror(errno))};
    for (int place = 0; place < count; ++place) add(found[place].start, found[place].end);
    next = scan.walk_end;
  }
  add(last_, end);
  return written;
}

}  // namespace grus::memory
