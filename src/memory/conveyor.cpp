#include "memory/conveyor.hpp"

#include "base/thread.hpp"

namespace grus::memory {
namespace {

// What is shared with a server needs no copy to get there.
std::shared_ptr<HostMemory> memory_for(Executor& executor, std::size_t size) {
  try {
    if (auto memory = executor.host_memory_for(false, size)) return memory;
  } catch (const std::bad_alloc&) {  // it has no more of it
  }
  return memory_in_pages(size);
}

}  // namespace

Conveyor::Conveyor(std::shared_ptr<HostMemory> memory, Overlap overlap)
    : memory_{std::move(memory)}, slot_size_{memory_->size() / kSlots} {
  if (overlap == Overlap::on) thread_ = start_thread("grus-copies", [this] { run(); });
}

Conveyor::Conveyor(Executor& from, Executor& to, Context& context, std::size_t slot_size, Overlap overlap)
    : Conveyor{memory_for(to.is_in_this_process() ? from : to, kSlots * slot_size), overlap} {
  registered_.emplace(context, memory_, std::initializer_list<Executor*>{&from, &to});
}

Conveyor::~Conveyor() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock{mutex_};
    is_over_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Conveyor::check() const {
  if (failure_) std::rethrow_exception(failure_);
}

std::byte* Conveyor::take() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return handed_over_ - written_ < kSlots || failure_; });
  check();
  return memory_->data() + handed_over_ % kSlots * slot_size_;
}

Conveyor::Number Conveyor::hand_over(Job job) {
  if (!thread_.joinable()) {
    job.write();
    job.finish();
    return 0;
  }
  const std::lock_guard lock{mutex_};
  check();
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return ++handed_over_;
}

bool Conveyor::has_room() {
  const std::lock_guard lock{mutex_};
  return thread_.joinable() && handed_over_ - written_ < 2;
}

void Conveyor::wait_for(Number number) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return written_ >= number || failure_; });
  check();
}

void Conveyor::finish() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return handed_over_ == written_ || failure_; });
  check();
}

void Conveyor::try_to(const std::function<void()>& act, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  std::exception_ptr failure;
  try {
    act();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (failure && !failure_) failure_ = failure;
}

void Conveyor::run() {
  std::deque<Job> unfinished;
  std::unique_lock lock{mutex_};
  while (!is_over_ || !unfinished.empty()) {
    if (!jobs_.empty() && !is_over_) {
      unfinished.push_back(std::move(jobs_.front()));
      jobs_.pop_front();
      try_to(unfinished.back().write, lock);
      if (unfinished.size() < kSlots) continue;
    }
    if (unfinished.empty()) {
      changed_.wait(lock, [this] { return is_over_ || !jobs_.empty(); });
      continue;
    }
    try_to(unfinished.front().finish, lock);
    unfinished.pop_front();
    ++written_;
    changed_.notify_all();
  }
}

}  // namespace grus::memory
