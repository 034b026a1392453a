#include "worker.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>

#include <chrono>

#include "behaviour.hpp"

namespace fake {
namespace {

// Never destroyed: other threads may be at it when the process ends.
Worker* g_worker = nullptr;

[[gnu::constructor(102)]] void make_worker() { g_worker = new Worker; }

cl_ulong now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<cl_ulong>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

}  // namespace

Worker& worker() { return *g_worker; }

Worker::Worker() : held_{is_told("hold")} {}

void Worker::add_context() {
  const std::lock_guard lock{mutex_};
  ++contexts_;
  if (contexts_ != 1) return;
  if (const auto path = value_of("device")) open(path->c_str(), O_RDONLY | O_CLOEXEC);
  if (const auto path = value_of("library"); path && !left_behind_) left_behind_ = dlopen(path->c_str(), RTLD_NOW);
  ends_ = false;
  thread_ = std::thread{[this] { run(); }};
  pthread_setname_np(thread_.native_handle(), "fake-vendor");
}

void Worker::remove_context() {
  {
    const std::lock_guard lock{mutex_};
    if (--contexts_ != 0) return;
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Worker::enqueue(Command command) {
  const std::lock_guard lock{mutex_};
  ++command.queue->unfinished;
  command.event->times[0] = command.event->times[1] = now();
  command.event->status = CL_SUBMITTED;
  waiting_.push_back(std::move(command));
  changed_.notify_all();
}

void Worker::run() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || (!held_ && !waiting_.empty()); });
    if (ends_) return;
    Command command = std::move(waiting_.front());
    waiting_.pop_front();
    carry_out(command, lock);
    --command.queue->unfinished;
    finished_.push_back(std::move(command));
    changed_.notify_all();
  }
}

void Worker::carry_out(Command& command, std::unique_lock<std::mutex>& lock) {
  _cl_event& event = *command.event.get();
  for (const auto& wait : command.waits) {
    changed_.wait(lock, [&] { return wait->status <= CL_COMPLETE; });
  }
  event.status = CL_RUNNING;
  event.times[2] = now();
  lock.unlock();
  if (command.work) command.work();
  lock.lock();
  event.times[3] = now();
  event.status = CL_COMPLETE;
  const auto callbacks = std::move(event.callbacks);
  changed_.notify_all();
  lock.unlock();
  for (const auto& callback : callbacks) callback.call(&event, callback.status);
  lock.lock();
}

void Worker::wait_for(_cl_event& event) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return event.status <= CL_COMPLETE; });
}

void Worker::finish(const _cl_command_queue& queue) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return queue.unfinished == 0; });
}

void Worker::finish_unless_held(const _cl_command_queue& queue) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return held_ || queue.unfinished == 0; });
}

void Worker::let_go() {
  const std::lock_guard lock{mutex_};
  held_ = false;
  changed_.notify_all();
}

void Worker::drop_finished() {
  std::vector<Command> finished;
  const std::lock_guard lock{mutex_};
  finished.swap(finished_);
}

cl_int Worker::status_of(const _cl_event& event) {
  const std::lock_guard lock{mutex_};
  return event.status;
}

cl_ulong Worker::time_of(const _cl_event& event, std::size_t which) {
  const std::lock_guard lock{mutex_};
  return event.times[which];
}

void Worker::add_callback(_cl_event& event, _cl_event::Callback callback) {
  {
    const std::lock_guard lock{mutex_};
    if (event.status > CL_COMPLETE) {
      event.callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback.call(&event, callback.status);
}

}  // namespace fake
