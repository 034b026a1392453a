#include "objects/immovable.hpp"

#include <mutex>
#include <set>

#include "base/per_process.hpp"

namespace grus {
namespace {

struct Reasons {
  std::mutex mutex;  // guards all
  std::set<std::string> all;
};

}  // namespace

void note_immovable(const std::string& reason) {
  auto& reasons = of_this_process<Reasons>();
  const std::lock_guard lock{reasons.mutex};
  reasons.all.insert(reason);
}

std::vector<std::string> immovable_reasons() {
  auto& reasons = of_this_process<Reasons>();
  const std::lock_guard lock{reasons.mutex};
  return {reasons.all.begin(), reasons.all.end()};
}

}  // namespace grus
