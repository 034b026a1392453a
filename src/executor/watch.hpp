// Looks again and again whether something is so, on a thread that there is for as long as there is something to look
// at. For what drivers tell late.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

namespace grus {

class Watch {
 public:
  Watch() = default;
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void add(std::function<bool()> is_over);  // is called until it says so, and is then destroyed
  void finish();                            // waits until there is nothing to look at

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    std::function<bool()> is_over;
    Clock::time_point since;
  };
  void run();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Watched> new_;
  std::size_t left_ = 0;  // with those that aren't new
  bool is_over_ = false;
  bool is_running_ = false;
};

}  // namespace grus
