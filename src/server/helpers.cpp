#include "server/helpers.hpp"

#include "base/thread.hpp"

namespace grus::server {

Helpers::~Helpers() {
  std::unique_lock lock{mutex_};
  ending_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return running_ == 0; });
}

void Helpers::run(std::function<void()> job) {
  const std::lock_guard lock{mutex_};
  jobs_.push_back(std::move(job));
  if (idle_ < jobs_.size() && running_ < most_) {
    start_thread("grus-helper", [this] { work(); }).detach();
    ++running_;
  }
  changed_.notify_one();
}

void Helpers::wait_for_room(std::size_t most) {
  std::unique_lock lock{mutex_};
  fewer_.wait(lock, [&] { return jobs_.size() <= most; });
}

void Helpers::work() {
  std::unique_lock lock{mutex_};
  for (;;) {
    ++idle_;
    changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    --idle_;
    if (jobs_.empty()) break;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    fewer_.notify_one();
    lock.unlock();
    job();
    lock.lock();
  }
  --running_;
  changed_.notify_all();
}

}  // namespace grus::server
