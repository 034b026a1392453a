#include "executor/watch.hpp"

#include <algorithm>
#include <iterator>

#include "base/thread.hpp"

namespace grus {
namespace {

using namespace std::chrono_literals;

// What has taken long may take longer.
constexpr std::chrono::nanoseconds kOften = 50us;
constexpr std::chrono::nanoseconds kSeldom = 2ms;
constexpr int kPart = 32;
constexpr auto kLinger = 100ms;

}  // namespace

Watch::~Watch() {
  {
    const std::lock_guard lock{mutex_};
    is_over_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Watch::add(std::function<bool()> is_over) {
  const std::lock_guard lock{mutex_};
  new_.push_back({std::move(is_over), Clock::now()});
  ++left_;
  changed_.notify_all();
  if (is_running_) return;
  if (thread_.joinable()) thread_.join();
  thread_ = start_thread("grus-watch", [this] { run(); });
  is_running_ = true;
}

void Watch::finish() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return left_ == 0; });
}

void Watch::run() {
  std::vector<Watched> all;
  for (;;) {
    {
      std::unique_lock lock{mutex_};
      if (all.empty()) {
        is_running_ = changed_.wait_for(lock, kLinger, [this] { return is_over_ || !new_.empty(); });
        if (!is_running_) return;
      } else {
        const auto newest = std::max_element(
            all.begin(), all.end(), [](const auto& one, const auto& other) { return one.since < other.since; });
        const std::chrono::nanoseconds pause = (Clock::now() - newest->since) / kPart;
        changed_.wait_for(lock, std::clamp(pause, kOften, kSeldom), [this] { return is_over_ || !new_.empty(); });
      }
      if (is_over_) return;
      std::move(new_.begin(), new_.end(), std::back_inserter(all));
      new_.clear();
    }
    const std::size_t gone = std::erase_if(all, [](const Watched& one) { return one.is_over(); });
    const std::lock_guard lock{mutex_};
    left_ -= gone;
    if (left_ == 0) changed_.notify_all();
  }
}

}  // namespace grus
