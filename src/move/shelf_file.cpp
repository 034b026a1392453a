#include "move/shelf_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/log.hpp"
#include "move/transplant.hpp"

namespace grus::move {
namespace {

constexpr std::uint64_t kBlock = 4096;  // what is released must be whole blocks

// Of the one session, for its exit. They outlive the exit handlers.
std::mutex& g_mutex = *new std::mutex;  // guards what follows
std::string& g_path = *new std::string;
pid_t g_pid = 0;

void remove_now() {
  const std::lock_guard lock{g_mutex};
  if (!g_path.empty() && getpid() == g_pid) unlink(g_path.c_str());
  g_path.clear();
}

std::uint64_t whole_blocks(std::size_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

}  // namespace

// Nothing that is there already is overwritten.
ShelfFile::ShelfFile(std::string path)
    : path_{std::move(path)}, file_{open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)} {
  if (file_.get() < 0) fail(errno);
  static const bool is_registered = std::atexit(remove_now) == 0;
  (void)is_registered;
  const std::lock_guard lock{g_mutex};
  g_path = path_;
  g_pid = getpid();
}

ShelfFile::~ShelfFile() { remove_now(); }

void ShelfFile::fail(int error) const { throw Refused{fmt::format("{}: {}", path_, std::strerror(error))}; }

std::uint64_t ShelfFile::reserve(std::size_t size) {
  const std::lock_guard lock{mutex_};
  if (const int error = posix_fallocate(file_.get(), static_cast<off_t>(end_), static_cast<off_t>(size))) fail(error);
  return std::exchange(end_, end_ + whole_blocks(size));
}

void ShelfFile::release(std::uint64_t place, std::size_t size) noexcept {
  // Where a file system can't, the room comes back with all of the file.
  (void)fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(place),
                  static_cast<off_t>(whole_blocks(size)));
}

void ShelfFile::read(std::uint64_t place, std::byte* to, std::size_t size) const {
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = pread(file_.get(), to + done, size - done, static_cast<off_t>(place + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail(got < 0 ? errno : EIO);  // somebody has cut it short
    done += static_cast<std::size_t>(got);
  }
}

void ShelfFile::write(std::uint64_t place, const std::byte* from, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t put = pwrite(file_.get(), from + done, size - done, static_cast<off_t>(place + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail(errno);
    done += static_cast<std::size_t>(put);
  }
}

void ShelfFile::flush() {
  if (fdatasync(file_.get()) != 0) fail(errno);
  posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace grus::move
