#include "command/hold_back.hpp"

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "base/per_process.hpp"
#include "command/callbacks.hpp"
#include "command/gate.hpp"

namespace grus {
namespace {

constexpr auto kPart = std::chrono::microseconds{300};
constexpr auto kPause = std::chrono::microseconds{50};
constexpr auto kLook = std::chrono::milliseconds{50};  // so often who drains may change their mind

bool is_barrier(Order order) { return order == Order::barrier || order == Order::all_before_and_barrier; }
bool waits_for_all_before(Order order) { return order == Order::all_before || order == Order::all_before_and_barrier; }

bool failed(const Event& event) { return event.place() == Event::Place::finished && event.status_above() < 0; }

Held& as_held(const std::unique_ptr<HeldCommand>& command) { return static_cast<Held&>(*command); }

}  // namespace

HoldBack& HoldBack::instance() { return of_this_process<HoldBack>(); }

bool HoldBack::must_hold_now(const Queue& queue, Waits waits, Order order) {
  const std::lock_guard lock{mutex_};
  return everything_ != 0 || is_by_order_held(queue, waits, order) || !take_allowance();
}

bool HoldBack::take_allowance() {
  if (!is_sliced_) return true;
  if (allowed_ == 0) return false;
  --allowed_;
  return true;
}

bool HoldBack::is_by_order_held(const Queue& queue, Waits waits, Order order) const {
  if (std::any_of(waits.begin(), waits.end(),
                  [](const Event* event) { return event->place() == Event::Place::above || failed(*event); })) {
    return true;
  }
  if (queue.held.empty()) return false;
  if (queue.in_order() || waits_for_all_before(order)) return true;
  return std::any_of(queue.held.begin(), queue.held.end(),
                     [](const auto& command) { return is_barrier(as_held(command).order); });
}

void HoldBack::hold(std::unique_ptr<Held> command) {
  Sent sent;
  const std::lock_guard lock{mutex_};
  Queue& queue = *command->queue;
  command->number = next_number_++;
  if (queue.held.empty()) queues_with_held_.push_back(&queue);
  queue.held.push_back(std::move(command));
  queue.held_count.fetch_add(1, std::memory_order_relaxed);
  any_.fetch_add(1, std::memory_order_release);
  held_so_far_.fetch_add(1, std::memory_order_relaxed);
  note_want();
  if (!is_catching_up_) send_what_can_go(sent);
}

bool HoldBack::finish(Event& user_event, cl_int status) {
  Sent sent;
  const std::lock_guard lock{mutex_};
  if (user_event.place() == Event::Place::finished) return false;
  finish_above(user_event, status);
  note_want();
  if (!is_catching_up_) send_what_can_go(sent);
  return true;
}

void HoldBack::leave_below(Event& event, cl_int status, std::unique_ptr<Event::Profile> profile) {
  const std::lock_guard lock{mutex_};
  event.set_finished(status);
  event.profile = std::move(profile);
  event.created = false;
}

void HoldBack::session_moves(const Held::Stays& stays) {
  const std::lock_guard lock{mutex_};
  for (const Queue* queue : queues_with_held_) {
    for (const auto& command : queue->held) as_held(command).session_moves(stays);
  }
}

// For a vendor's thread: nothing of the call stays there, for what it holds may be the last reference to an object.
std::function<void(cl_int)> HoldBack::posting(std::function<void(cl_int)> call) {
  return [call = std::move(call)](cl_int reached) mutable {
    callbacks::post([call = std::move(call), reached] { call(reached); });
  };
}

void HoldBack::finish_above(Event& event, cl_int status) {
  event.set_finished(status);
  for (auto& callback : event.callbacks) {
    callbacks::post(
        [call = std::move(callback.call), reached = status < 0 ? status : callback.status] { call(reached); });
  }
  event.callbacks.clear();
  changed_.notify_all();
}

cl_int HoldBack::add_callback(Event& event, cl_int status, std::function<void(cl_int)> call) {
  const std::lock_guard lock{mutex_};
  switch (event.place()) {
    case Event::Place::above:
      event.callbacks.push_back({status, std::move(call)});
      return CL_SUCCESS;
    case Event::Place::finished: {
      const cl_int reached = event.status_above() < 0 ? event.status_above() : status;
      callbacks::post([call = std::move(call), reached] { call(reached); });
      return CL_SUCCESS;
    }
    case Event::Place::below:
      return executor_of(*event.context).when_event(event.id(), status, posting(std::move(call)));
  }
  return CL_INVALID_EVENT;
}

// Sends what was held back, which may be much. Whoever enqueues meanwhile needs the mutex, and its turn to get it.
void HoldBack::catch_up() {
  for (bool is_over = false; !is_over;) {
    {
      const Gate::Entry entry{kInternalCall};
      Sent sent;
      const std::lock_guard lock{mutex_};
      is_catching_up_ = true;
      is_part_sent_ = false;
      part_ends_ = std::chrono::steady_clock::now() + kPart;
      send_what_can_go(sent);
      is_over = !is_part_sent_;
      is_catching_up_ = !is_over;
    }
    if (!is_over) std::this_thread::sleep_for(kPause);
  }
}

// Sends on whatever no longer has to wait. Something sent in one queue can free something in another, so it goes round
// until nothing moves.
void HoldBack::send_what_can_go(Sent& sent) {
  if (everything_ != 0) return;
  for (bool moved = true; moved && !is_part_sent_;) {
    moved = false;
    for (std::size_t next = 0; next < queues_with_held_.size();) {
      Queue& queue = *queues_with_held_[next];
      const Ref<Queue> alive{&queue};
      if (send_from(queue, sent)) moved = true;
      if (queue.held.empty()) {
        queues_with_held_.erase(queues_with_held_.begin() + static_cast<std::ptrdiff_t>(next));
      } else {
        ++next;
      }
    }
  }
  if (!sent.empty()) changed_.notify_all();
}

bool HoldBack::send_from(Queue& queue, Sent& sent) {
  bool moved = false;
  bool all_before_sent = true;
  bool behind_barrier = false;
  for (auto next = queue.held.begin(); next != queue.held.end();) {
    Held& held = as_held(*next);
    const bool waits_done = std::none_of(held.waits.begin(), held.waits.end(),
                                         [](const Ref<Event>& event) { return event->place() == Event::Place::above; });
    const bool in_turn = queue.in_order() || waits_for_all_before(held.order) ? all_before_sent : !behind_barrier;
    if (waits_done && in_turn && is_catching_up_ && std::chrono::steady_clock::now() >= part_ends_) {
      is_part_sent_ = true;
      break;
    }
    if (waits_done && in_turn && take_allowance()) {
      send(held);
      sent.push_back(std::move(*next));
      next = queue.held.erase(next);
      queue.held_count.fetch_sub(1, std::memory_order_relaxed);
      any_.fetch_sub(1, std::memory_order_release);
      moved = true;
      continue;
    }
    if (queue.in_order()) break;
    all_before_sent = false;
    behind_barrier = behind_barrier || is_barrier(held.order);
    ++next;
  }
  // The program may have flushed long ago.
  if (moved) executor_of(queue).flush(queue.id());
  return moved;
}

void HoldBack::send(Held& held) {
  Executor& executor = executor_of(*held.queue);
  std::vector<ObjectId> waits;
  for (const auto& event : held.waits) {
    if (failed(*event)) return finish_above(*held.event, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    if (event->place() == Event::Place::below) waits.push_back(event->id());
  }
  const cl_int code = held.submit(executor, {held.queue->id(), waits, held.event->id(), Blocking::no});
  if (code != CL_SUCCESS) {
    log::warn("command.held", "a command that was held back failed when it was sent: OpenCL error {}", code);
    return finish_above(*held.event, code);
  }
  held.event->set_below();
  for (auto& callback : held.event->callbacks) {
    const cl_int refused = executor.when_event(held.event->id(), callback.status, posting(std::move(callback.call)));
    if (refused != CL_SUCCESS)
      log::warn("callback", "a driver takes no callback for an event: OpenCL error {}", refused);
  }
  held.event->callbacks.clear();
}

void HoldBack::wait_until_sent(const Queue& queue) {
  std::unique_lock lock{mutex_};
  const std::uint64_t last = next_number_ - 1;
  changed_.wait(lock, [&] { return queue.held.empty() || as_held(queue.held.front()).number > last; });
}

void HoldBack::wait_until_not_above(std::span<Event* const> events) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] {
    return std::none_of(events.begin(), events.end(),
                        [](const Event* event) { return event->place() == Event::Place::above; });
  });
}

HoldBack::Slices::Slices(HoldBack& hold_back) : hold_back_{hold_back} {
  const std::lock_guard lock{hold_back_.mutex_};
  hold_back_.is_sliced_ = true;
  hold_back_.allowed_ = 0;
  hold_back_.any_.fetch_add(1, std::memory_order_release);
}

HoldBack::Slices::~Slices() {
  {
    const std::lock_guard lock{hold_back_.mutex_};
    hold_back_.is_sliced_ = false;
    hold_back_.changed_.notify_all();
  }
  hold_back_.catch_up();
  hold_back_.any_.fetch_sub(1, std::memory_order_release);
}

void HoldBack::Slices::allow(std::size_t commands) {
  {
    const std::lock_guard lock{hold_back_.mutex_};
    hold_back_.allowed_ = commands;
  }
  hold_back_.catch_up();
}

void HoldBack::wait_for_room() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return (everything_ == 0 && !is_sliced_) || !is_full(); });
}

void HoldBack::note_want() {
  if (everything_ == 0) return;
  ++wanted_;
  changed_.notify_all();
}

std::uint64_t HoldBack::wanted() {
  const std::lock_guard lock{mutex_};
  return wanted_;
}

void HoldBack::wait_until_wanted(std::uint64_t since) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return everything_ == 0 || wanted_ != since; });
}

void HoldBack::wait_while_everything() {
  std::unique_lock lock{mutex_};
  note_want();
  changed_.wait(lock, [&] { return everything_ == 0; });
}

HoldBack::Everything::Everything(HoldBack& hold_back) : hold_back_{hold_back} {
  const std::lock_guard lock{hold_back_.mutex_};
  ++hold_back_.everything_;
  hold_back_.any_.fetch_add(1, std::memory_order_release);
}

HoldBack::Everything::~Everything() {
  {
    const std::lock_guard lock{hold_back_.mutex_};
    --hold_back_.everything_;
    hold_back_.changed_.notify_all();
  }
  hold_back_.catch_up();
  hold_back_.any_.fetch_sub(1, std::memory_order_release);
}

bool HoldBack::Everything::drain(std::chrono::steady_clock::time_point deadline, const std::function<void()>& look) {
  using Clock = std::chrono::steady_clock;
  const auto wait = [&](const auto& done_until) {
    while (!done_until(std::min(deadline, Clock::now() + kLook))) {
      if (Clock::now() >= deadline) return false;
      look();
    }
    return true;
  };
  // First those who decided to send before everything was held back, then what the device still has.
  g_gate.wait_for_those_inside();
  if (!wait([](Clock::time_point until) { return g_gate.wait_for_those_working(until); })) return false;
  struct Idle {
    std::mutex mutex;  // guards busy
    std::condition_variable changed;
    std::size_t busy = executors_in_use().size();
  };
  auto idle = std::make_shared<Idle>();
  for (Executor* const executor : executors_in_use()) {
    executor->when_idle(Whose::programs, [idle] {
      const std::lock_guard lock{idle->mutex};
      --idle->busy;
      idle->changed.notify_all();
    });
  }
  return wait([&](Clock::time_point until) {
    std::unique_lock lock{idle->mutex};
    return idle->changed.wait_until(lock, until, [&] { return idle->busy == 0; });
  });
}

}  // namespace grus
