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
  std::unique_lock lock{mutex_};
  is_over_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !is_running_; });
}

void Watch::add(std::function<bool()> is_over) {
  const std::lock_guard lock{mutex_};
  new_.push_back({std::move(is_over), Clock::now()});
  ++left_;
  changed_.notify_all();
  if (is_running_) return;
  start_thread("grus-watch", [this] { run(); }).detach();  // the process may end without it
  is_running_ = true;
}

void Watch::finish() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return left_ == 0; });
}

void Watch::run() {
  std::vector<Watched> all;
  std::unique_lock lock{mutex_};
  const auto has_news = [this] { return is_over_ || !new_.empty(); };
  for (;;) {
    if (all.empty()) {
      if (!changed_.wait_for(lock, kLinger, has_news)) break;
    } else {
      const auto newest = std::max_element(all.begin(), all.end(),
                                           [](const auto& one, const auto& other) { return one.since < other.since; });
      const std::chrono::nanoseconds pause = (Clock::now() - newest->since) / kPart;
      changed_.wait_for(lock, std::clamp(pause, kOften, kSeldom), has_news);
    }
    if (is_over_) break;
    std::move(new_.begin(), new_.end(), std::back_inserter(all));
    new_.clear();
    lock.unlock();
    const std::size_t gone = std::erase_if(all, [](const Watched& one) { return one.is_over(); });
    lock.lock();
    left_ -= gone;
    if (left_ == 0) changed_.notify_all();
  }
  all.clear();  // before the drivers may go
  is_running_ = false;
  changed_.notify_all();
}

}  // namespace grus
