#include "server/worker_folders.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "base/log.hpp"

namespace grus::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "workers-";

// The lock of who made it; empty if another process has that.
channel::Descriptor lock(const fs::path& folder) {
  channel::Descriptor there{open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  return flock(there.get(), LOCK_EX | LOCK_NB) == 0 ? std::move(there) : channel::Descriptor{};
}

void remove_left_over(const fs::path& in) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator{in, error}) {
    struct stat about {};
    if (!entry.path().filename().string().starts_with(kPrefix) || lstat(entry.path().c_str(), &about) != 0) continue;
    if (about.st_uid == geteuid() && lock(entry.path()).get() >= 0) fs::remove_all(entry.path(), error);
  }
}

}  // namespace

fs::path cache_folder() {
  const char* const named = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (named && *named) return named;
  return home && *home ? fs::path{home} / ".cache" : fs::path{};
}

WorkerFolders::WorkerFolders() {
  std::error_code error;
  fs::path in = cache_folder().empty() ? fs::temp_directory_path() : cache_folder() / "grus";
  fs::create_directories(in, error);
  if (access(in.c_str(), W_OK) != 0) in = fs::temp_directory_path();
  remove_left_over(in);
  std::string made = in / "new-workers-XXXXXX";
  if (!mkdtemp(made.data()))
    throw std::runtime_error{fmt::format("no folder for workers in {}: {}", in.string(), std::strerror(errno))};
  // It has its name when it is locked: another server that starts now would take it for one that was left.
  lock_ = lock(made);
  all_ = in / fs::path{made}.filename().string().substr(std::strlen("new-"));
  fs::rename(made, all_);
}

WorkerFolders::~WorkerFolders() {
  removers_.reset();
  std::error_code error;
  fs::remove_all(all_, error);
}

std::shared_ptr<const fs::path> WorkerFolders::add() {
  const fs::path folder = all_ / std::to_string(count_++);
  std::error_code error;
  fs::create_directory(folder, error);
  const auto remove = [this](const fs::path* which) {
    removers_->run([path = *which] {
      std::error_code failed;
      fs::remove_all(path, failed);
    });
    delete which;
  };
  return {new fs::path{folder}, remove};
}

}  // namespace grus::server
