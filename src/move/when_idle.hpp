#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "command/executor.hpp"

namespace grus::move {

// Whether all that a program gave an executor so far is done, asked for now and answered soon.
class WhenIdle {
 public:
  explicit WhenIdle(Executor& executor) {
    executor.when_idle(Whose::programs, [state = state_] {
      const std::lock_guard lock{state->mutex};
      state->is_done = true;
      state->changed.notify_all();
    });
  }
  bool is_done() const {
    const std::lock_guard lock{state_->mutex};
    return state_->is_done;
  }
  bool wait(std::chrono::steady_clock::duration limit) const {
    std::unique_lock lock{state_->mutex};
    return state_->changed.wait_for(lock, limit, [&] { return state_->is_done; });
  }

 private:
  struct State {
    std::mutex mutex;  // guards is_done
    std::condition_variable changed;
    bool is_done = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace grus::move
