#include "command/callbacks.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "command/gate.hpp"

namespace grus::callbacks {
namespace {

class Thread {
 public:
  void post(std::function<void()> call) {
    const std::lock_guard lock{mutex_};
    calls_.push_back(std::move(call));
    // Started by the first callback, so that programs without any have no thread more than they started. It runs until
    // the process ends: the library is never unloaded.
    if (!started_) {
      start_thread("grus-callbacks", [this] { run(); }).detach();
      started_ = true;
    }
    posted_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock{mutex_};
    for (;;) {
      posted_.wait(lock, [this] { return !calls_.empty(); });
      auto call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
      {
        const Gate::Entry entry{kInternalCall};  // its captures may be the last to hold an object
        call = nullptr;
      }
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards calls_ and started_
  std::condition_variable posted_;
  std::deque<std::function<void()>> calls_;
  bool started_ = false;
};

Thread* g_thread = new Thread;

}  // namespace

void post(std::function<void()> call) noexcept {
  try {
    g_thread->post(std::move(call));
  } catch (const std::exception& error) {
    log::error("callback", "a callback is lost: {}", error.what());
  }
}

void forget_all() noexcept { g_thread = new Thread; }

}  // namespace grus::callbacks
