#include "channel/area.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/log.hpp"
#include "channel/ring.hpp"
#include "channel/stream.hpp"

namespace grus::channel {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kPageSize = 4096;
constexpr std::uint64_t kBulkPart = 4 * kMiB;  // what one transfer goes through
constexpr std::uint64_t kMostBulk = 64 * kMiB;
constexpr std::chrono::seconds kPatienceWithWorkers{5};
constexpr std::chrono::milliseconds kBetweenAttempts{50};
constexpr const char* kDevices = "/sys/bus/pci/devices";

std::string reason() { return std::strerror(errno); }

std::string line_of(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream{file}, line);
  return line;
}

std::vector<std::string> shared_memory_devices() {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& device : fs::directory_iterator{kDevices, error}) {
    if (line_of(device.path() / "vendor") == "0x1af4" && line_of(device.path() / "device") == "0x1110")
      found.push_back(device.path().filename());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string only_device() {
  const auto found = shared_memory_devices();
  if (found.empty())
    throw Lost{"this machine has no shared-memory device (-device ivshmem-plain of QEMU); `virtio-serial:` needs none"};
  if (found.size() == 1) return found.front();
  throw Lost{fmt::format("this machine has several shared-memory devices; name one: ivshmem:{}",
                         fmt::join(found, " or ivshmem:"))};
}

// Workers of a relay that was here before have it until they end, and their slices with it.
bool lock(int file) {
  const auto until = std::chrono::steady_clock::now() + kPatienceWithWorkers;
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(kBetweenAttempts);
  }
  return true;
}

// One that was plugged in while the guest ran answers only when it is enabled, which root can do.
void enable(const fs::path& device) {
  char config[6]{};
  std::ifstream{device / "config", std::ios::binary}.read(config, sizeof config);
  constexpr char kMemory = 2;  // in the command register
  if ((config[4] & kMemory) == 0) std::ofstream{device / "enable"} << "1";
}

}  // namespace

SharedSizes sizes_in(const Slice& slice) {
  const std::uint64_t bulk = std::min(kMostBulk, slice.size / 4 / kBulkPart * kBulkPart);
  return {kRingsSize, bulk, slice.size - kRingsSize - bulk};
}

bool is_slice_of(int file, const Slice& slice) {
  struct stat about {};
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return false;
  const auto all = static_cast<std::uint64_t>(about.st_size);
  return slice.offset % kPageSize == 0 && slice.size % kPageSize == 0 && slice.size >= kSmallestSlice &&
         slice.size <= all && slice.offset <= all - slice.size;
}

Area::Area(const std::string& path, std::uint64_t slice_size)
    : file_{open(path.c_str(), O_RDWR | O_CLOEXEC)}, size_{slice_size} {
  const auto refuse = [&](const std::string& why) { return Lost{fmt::format("--area {}: {}", path, why)}; };
  if (file_.get() < 0 && errno == ENOENT)
    throw refuse(fmt::format("there is no such file; make it: truncate -s 256M {}", path));
  struct stat about {};
  if (file_.get() < 0 || fstat(file_.get(), &about) != 0) throw refuse(reason());
  const auto all = static_cast<std::uint64_t>(about.st_size) / kPageSize * kPageSize;
  if (!S_ISREG(about.st_mode) || all < kSmallestSlice)
    throw refuse(fmt::format("it must be a file of at least {} MiB", kSmallestSlice / kMiB));
  if (!lock(file_.get())) throw refuse("another relay uses it; each guest needs a file of its own");
  if (about.st_mode & (S_IRWXG | S_IRWXO))
    log::warn("relay", "{}: other users of this host may look into what its guest computes; chmod 600 it", path);
  size_ = std::min(size_ / kPageSize * kPageSize, all);
  all_.resize(all / size_);
}

std::optional<Area::Taken> Area::take(std::uint32_t connection) {
  look_at_signs();
  const auto piece =
      std::find_if(all_.begin(), all_.end(), [](const Piece& one) { return one.sign.get() < 0 && !one.connection; });
  int ends[2];
  if (piece == all_.end() || pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  piece->sign = Descriptor{ends[0]};
  piece->connection = connection;
  const auto index = static_cast<std::uint64_t>(piece - all_.begin());
  // QEMU writes there too: a guest that arrives brings what it had of another host's area.
  clear(index);
  return Taken{{index * size_, size_}, Descriptor{ends[1]}};
}

void Area::note_held(std::uint32_t connection, const Slice& slice) {
  for (std::size_t index = 0; index < all_.size(); ++index) {
    const std::uint64_t start = index * size_;
    const bool overlaps = start < slice.offset + slice.size && slice.offset < start + size_;
    if (overlaps && !all_[index].connection) all_[index].connection = connection;
  }
}

void Area::is_let_go(std::uint32_t connection) {
  for (std::size_t index = 0; index < all_.size(); ++index) {
    if (all_[index].connection != connection) continue;
    all_[index].connection.reset();
    if (all_[index].sign.get() < 0) clear(index);
  }
}

void Area::are_all_let_go() {
  for (const Piece& piece : all_) {
    if (piece.connection) is_let_go(*piece.connection);
  }
}

std::vector<int> Area::signs() const {
  std::vector<int> signs;
  for (const Piece& piece : all_) {
    if (piece.sign.get() >= 0) signs.push_back(piece.sign.get());
  }
  return signs;
}

// The system closes the other end once the worker's memory is gone.
void Area::look_at_signs() {
  for (std::size_t index = 0; index < all_.size(); ++index) {
    Piece& piece = all_[index];
    pollfd ready{piece.sign.get(), 0, 0};
    if (ready.fd < 0 || poll(&ready, 1, 0) <= 0) continue;
    piece.sign.reset();
    if (!piece.connection) clear(index);
  }
}

// The next session doesn't see what this one left, and the host has its memory back, where the file system can do that.
void Area::clear(std::size_t index) const {
  const auto start = static_cast<off_t>(index * size_);
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (fallocate(file_.get(), kPunch, start, static_cast<off_t>(size_)) == 0) return;
  const std::vector<std::byte> zeroes(size_);
  if (pwrite(file_.get(), zeroes.data(), zeroes.size(), start) != static_cast<ssize_t>(zeroes.size()))
    log::error("relay", "what a program of the guest left in its shared memory can't be cleared: {}", reason());
}

Bar open_bar(const std::string& device) {
  Bar bar;
  bar.path = device;
  if (!device.starts_with('/')) {
    const fs::path folder = fs::path{kDevices} / (device.empty() ? only_device() : device);
    enable(folder);
    bar.path = folder / "resource2";
  }
  bar.file = Descriptor{open(bar.path.c_str(), O_RDWR | O_CLOEXEC)};
  if (bar.file.get() < 0 && (errno == EACCES || errno == EPERM))
    throw Lost{fmt::format("{}: {}; root can let this user's group in: chgrp GROUP {} && chmod 660 {}", bar.path,
                           reason(), bar.path, bar.path)};
  struct stat about {};
  if (bar.file.get() < 0 || fstat(bar.file.get(), &about) != 0)
    throw Lost{fmt::format("{}: {}; is that a shared-memory device?", bar.path, reason())};
  bar.size = static_cast<std::uint64_t>(about.st_size);
  return bar;
}

}  // namespace grus::channel
