// Folders of workers, for what drivers cache: each has its own for as long as it lives, and can't see others'.
#pragma once

#include <filesystem>
#include <memory>

#include "channel/descriptor.hpp"
#include "server/helpers.hpp"

namespace grus::server {

// The user's; empty if there is none.
std::filesystem::path cache_folder();

class WorkerFolders {
 public:
  // Also removes those of servers that were killed. Throws std::runtime_error.
  WorkerFolders();
  ~WorkerFolders();
  WorkerFolders(const WorkerFolders&) = delete;
  WorkerFolders& operator=(const WorkerFolders&) = delete;

  // A new one, which is removed with all that is in it when nobody knows of it any more.
  std::shared_ptr<const std::filesystem::path> add();

 private:
  std::filesystem::path all_;
  channel::Descriptor lock_;                                          // held while this server lives
  std::unique_ptr<Helpers> removers_ = std::make_unique<Helpers>(1);  // a worker may have left very many files
  unsigned count_ = 0;
};

}  // namespace grus::server
