// The worker's side of a device that sessions share: taken when there is a command for it, kept while there is work and
// nobody else wants it, and given back as the server wishes.
#pragma once

#include <functional>
#include <mutex>

#include "executor/turn.hpp"
#include "server/lease_page.hpp"

namespace grus::server {

class Lease final : public Turn {
 public:
  // tell_server wakes it, to look at the page. Never destroyed: its thread is there for as long as the process.
  Lease(LeasePage::Device& page, std::function<void()> tell_server);

 private:
  void take() override;
  bool is_wanted() const override { return page_.wish.load(std::memory_order_relaxed) != Wish::nothing; }
  bool is_recalled() const override { return page_.wish.load(std::memory_order_relaxed) == Wish::now; }
  void keep();  // on a thread of its own
  void keep_one();
  bool linger();
  void give_back(std::chrono::nanoseconds idle);

  LeasePage::Device& page_;
  const std::function<void()> tell_server_;
  std::mutex mutex_;                    // guards what follows, and whoever changes it
  std::uint32_t number_ = 0;            // of the lease that was asked for last
  std::atomic<std::uint32_t> held_{0};  // 0: none
};

}  // namespace grus::server
