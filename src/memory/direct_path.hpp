// The way between two servers on which a session's memory doesn't come through the program's process: the source
// compares, and sends what changed.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "memory/copy.hpp"

namespace grus::memory {

// One of the servers, or what is between them, has failed.
struct PathLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class DirectPath {
 public:
  // Null if there is no way, and why.
  static std::unique_ptr<DirectPath> open(Executor& from, Executor& to, std::string& why);
  ~DirectPath();
  DirectPath(const DirectPath&) = delete;
  DirectPath& operator=(const DirectPath&) = delete;

  // All has come when they return. Throw PathLost: then nobody knows what has, and there is no way any more.
  void copy(ObjectId queue, ObjectId buffer, Range range, Comparison how, Round round, const OnCopied& on_copied);
  // All of a part, as it is.
  struct Place {
    ObjectId queue;
    ObjectId buffer;
    std::size_t offset = 0;
  };
  void forward(const Place& from, const Place& to, std::size_t size);
  const std::string& why_lost() const { return why_lost_; }  // empty if it isn't

 private:
  DirectPath(Executor& from, Executor& to) : from_{from}, to_{to} {}
  PagesSent carry(const PagesOrder& order, ObjectId queue_there);

  Executor& from_;
  Executor& to_;
  std::string why_lost_;
};

}  // namespace grus::memory
