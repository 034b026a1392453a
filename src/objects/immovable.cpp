#include "objects/immovable.hpp"

#include <mutex>
#include <set>

namespace grus {
namespace {

struct Reasons {
  std::mutex mutex;  // guards all
  std::set<std::string> all;
};

Reasons& reasons() {
  static Reasons* const instance = new Reasons;  // never destroyed: reports are written at exit
  return *instance;
}

}  // namespace

void note_immovable(const std::string& reason) {
  const std::lock_guard lock{reasons().mutex};
  reasons().all.insert(reason);
}

std::vector<std::string> immovable_reasons() {
  const std::lock_guard lock{reasons().mutex};
  return {reasons().all.begin(), reasons().all.end()};
}

}  // namespace grus
