#include "executor/process_facts.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace grus {

std::set<std::string> mapped_libraries() {
  std::set<std::string> libraries;
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    if (path != std::string::npos && line.find(".so", path) != std::string::npos) libraries.insert(line.substr(path));
  }
  return libraries;
}

DeviceFiles open_device_files() {
  DeviceFiles files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd", error}) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && (target.starts_with("/dev/nvidia") || target.starts_with("/dev/dri/") || target == "/dev/kfd")) {
      files[std::stoi(entry.path().filename().string())] = target;
    }
  }
  return files;
}

int thread_count() {
  int count = 0;
  std::error_code error;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator{"/proc/self/task", error}) ++count;
  return count;
}

}  // namespace grus
