#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace grus::server {

// Threads that run what may take long, or what vendors' threads must not do; as many as are needed, at most.
class Helpers {
 public:
  explicit Helpers(std::size_t most) : most_{most} {}
  ~Helpers();
  void run(std::function<void()> job);
  // Waits until no more than so many jobs wait for a thread.
  void wait_for_room(std::size_t most);

 private:
  void work();

  const std::size_t most_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::condition_variable fewer_;
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;
  std::size_t running_ = 0;
  bool ending_ = false;
};

}  // namespace grus::server
