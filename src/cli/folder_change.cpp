#include "cli/folder_change.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/log.hpp"
#include "cli/problem.hpp"

namespace grus::cli {
namespace fs = std::filesystem;
namespace {

Problem problem(const fs::path& path, int error) {
  if (error == EACCES || error == EPERM) {
    return Problem{fmt::format("{}: {}; this needs root: try sudo", path.string(), std::strerror(error))};
  }
  return Problem{fmt::format("{}: {}", path.string(), std::strerror(error))};
}

void rename_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw problem(from, errno);
}

}  // namespace

FolderChange::FolderChange(fs::path folder) : folder_{std::move(folder)} {
  if (access(folder_.c_str(), W_OK | X_OK) != 0) throw problem(folder_, errno);
  lock_ = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) throw problem(folder_, errno);
  flock(lock_, LOCK_EX);
}

FolderChange::~FolderChange() {
  std::error_code error;
  for (auto step = undo_.rbegin(); step != undo_.rend(); ++step) {
    if (step->before.empty()) {
      fs::remove(step->now, error);
    } else {
      fs::rename(step->now, step->before, error);
    }
    if (error) {
      log::error("undo", "{} could not be put back: {}", step->now.string(), error.message());
    }
  }
  close(lock_);
}

void FolderChange::put_aside(const std::string& name) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder_ / name, error))) return;
  const fs::path aside = folder_ / ("." + name + "-replaced");  // no loader reads a file of such a name
  rename_file(folder_ / name, aside);
  undo_.push_back({aside, folder_ / name});
  aside_.push_back(aside);
}

void FolderChange::write(const std::string& name, const std::string& text) {
  put_aside(name);
  const fs::path unfinished = folder_ / ("." + name + "-new");
  std::ofstream file{unfinished, std::ios::trunc};
  undo_.push_back({unfinished, {}});
  file << text;
  file.close();
  if (!file) throw problem(unfinished, errno);
  using fs::perms;  // whatever root's umask is, everybody's loader must read it
  fs::permissions(unfinished, perms::owner_read | perms::owner_write | perms::group_read | perms::others_read);
  rename_file(unfinished, folder_ / name);
  undo_.back().now = folder_ / name;
}

void FolderChange::rename(const std::string& from, const std::string& to) {
  put_aside(to);
  rename_file(folder_ / from, folder_ / to);
  undo_.push_back({folder_ / to, folder_ / from});
}

void FolderChange::remove(const std::string& name) { put_aside(name); }

void FolderChange::commit() {
  undo_.clear();
  std::error_code error;
  for (const fs::path& file : aside_) fs::remove(file, error);  // a leftover that no loader reads does no harm
}

}  // namespace grus::cli
