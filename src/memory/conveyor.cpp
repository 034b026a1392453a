#include "memory/conveyor.hpp"

#include "base/thread.hpp"
#include "command/gate.hpp"

namespace grus::memory {
namespace {

// What is there needs no copy to get there. Null if there is none left.
std::shared_ptr<HostMemory> shared_with_server(Executor& executor, std::size_t size) {
  try {
    return executor.host_memory_for(false, size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

Conveyor::Conveyor(Executor& from, Executor& to, Context& context, std::size_t slot_size, Overlap overlap)
    : from_{from}, to_{to}, context_{context}, slot_size_{slot_size} {
  const std::size_t size = kSlots * slot_size;
  auto memory = shared_with_server(to.is_in_this_process() ? from : to, size);
  {
    const Gate::Entry entry{kInternalCall};
    memory_ = Ref<Memory>::adopt(slab<Memory>().create(context, CL_MEM_OBJECT_BUFFER));
    memory_->take_host_memory(memory ? std::move(memory) : memory_in_pages(size));
    memory_->is_region = true;
    memory_->size = size;
  }
  is_at_source_ = register_at(from);
  is_at_destination_ = register_at(to);
  if (overlap == Overlap::on) thread_ = start_thread("grus-copies", [this] { run(); });
}

// Where it can't be registered, copies are slower.
bool Conveyor::register_at(Executor& executor) {
  NewBuffer order;
  order.id = memory_->id();
  order.context = context_.id();
  order.size = memory_->size;
  order.host = memory_->host;
  order.host_memory = memory_->host_memory;
  order.is_region = true;
  return executor.create_buffer(order) == CL_SUCCESS;
}

Conveyor::~Conveyor() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock{mutex_};
      is_over_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  if (is_at_source_) from_.free(ObjectType::memory, memory_->id());
  if (is_at_destination_) to_.free(ObjectType::memory, memory_->id());
  const Gate::Entry entry{kInternalCall};
  memory_ = {};
}

void Conveyor::check() const {
  if (failure_) std::rethrow_exception(failure_);
}

std::byte* Conveyor::take() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return handed_over_ - written_ < kSlots || failure_; });
  check();
  return memory_->host + handed_over_ % kSlots * slot_size_;
}

void Conveyor::hand_over(std::function<void()> write) {
  if (!thread_.joinable()) return write();
  const std::lock_guard lock{mutex_};
  check();
  writes_.push_back(std::move(write));
  ++handed_over_;
  changed_.notify_all();
}

void Conveyor::finish() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return handed_over_ == written_ || failure_; });
  check();
}

void Conveyor::run() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return is_over_ || !writes_.empty(); });
    if (is_over_) return;
    const auto write = std::move(writes_.front());
    writes_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      write();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    ++written_;
    if (failure && !failure_) failure_ = failure;
    changed_.notify_all();
  }
}

}  // namespace grus::memory
