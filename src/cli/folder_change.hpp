// Changes to the files of one folder: all of them, or none.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace grus::cli {

class FolderChange {
 public:
  // Keeps others who change the folder this way out. Throws Problem if the folder can't be changed.
  explicit FolderChange(std::filesystem::path folder);
  // Undoes what was done, unless commit() came first.
  ~FolderChange();
  FolderChange(const FolderChange&) = delete;
  FolderChange& operator=(const FolderChange&) = delete;

  // Each throws Problem if it fails. What stands in the way is replaced.
  void write(const std::string& name, const std::string& text);
  void rename(const std::string& from, const std::string& to);
  void remove(const std::string& name);
  void commit();

 private:
  // How to undo a step: rename `now` back to `before`, or remove it if it had no name before.
  struct Undo {
    std::filesystem::path now;
    std::filesystem::path before;
  };
  void put_aside(const std::string& name);

  std::filesystem::path folder_;
  int lock_ = -1;
  std::vector<Undo> undo_;
  std::vector<std::filesystem::path> aside_;  // replaced or removed files, kept until commit
};

}  // namespace grus::cli
