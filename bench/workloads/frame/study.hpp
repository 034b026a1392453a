// Which pages of a workload's buffers change, seen from outside: read at intervals and compared with what was there.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "frame/frame.hpp"

namespace workload {

class Study {
 public:
  static constexpr size_t kPage = 4096;

  // The first look only remembers.
  void look(Frame& frame);
  // Pages, the share ever dirtied, and how many of those that were dirtied in one interval were again in the next.
  nlohmann::json as_json() const;

 private:
  struct Page {
    std::uint64_t fingerprint = 0;
    unsigned changes = 0;
    bool changed_last = false;
  };
  std::vector<std::vector<Page>> pages_;  // per buffer
  std::vector<double> shares_;            // of all pages, dirtied in each interval
  std::uint64_t dirtied_ = 0;             // over all intervals but the last
  std::uint64_t dirtied_again_ = 0;
  unsigned looks_ = 0;
};

}  // namespace workload
