#include "executor/turn.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>

#include "executor/vendor.hpp"

namespace grus {
namespace {

constexpr double kChunk = 4e6;  // ns that commands are waited for together
constexpr double kPiece = 2e6;  // while others wait, and of a command that is split
constexpr double kPieceAlone = 100e6;
constexpr std::chrono::seconds kAlone{1};          // since anybody else wanted the device
constexpr std::chrono::milliseconds kPromptly{1};  // is given what nobody else has
constexpr double kLongest = 15e6;                  // of a command, for another to be under way with it
constexpr double kUnknown = kLongest;
constexpr double kLeast = 2e3;                    // of any command
constexpr std::chrono::microseconds kWaited{10};  // for what was not there yet
constexpr double kPerByte = 0.2;
constexpr std::size_t kMostKinds = 8;
constexpr std::uint32_t kMostOfKind = 4096;
constexpr double kAsBefore = 4;  // times as long as expected, at most
constexpr std::size_t kMostChunks = 4;
constexpr std::chrono::milliseconds kUntilBack{1};  // or not, if nobody wants it any more
constexpr double kMostGrowth = 16;    // of what is expected, at once: the device may have had nothing to do in between
constexpr double kLeastGrowth = 0.7;  // it may seem short since the one before was seen to end late
constexpr std::size_t kProbes = 64;   // pieces of a command that nobody knows, at first
constexpr std::uint32_t kTrusted = 16;   // changes of arguments that made a kernel no longer: then none is expected to
constexpr double kMostLonger = 4;        // than the piece before
constexpr double kEnough = 1.2;          // times as long as it should be: then it stays so
constexpr double kHardlyLonger = 1.6;    // times as long, for twice as much
constexpr float kForgets = 0.999F;       // of what it took, each time that it isn't sent for that
constexpr double kMostForTrial = 500e6;  // ns; what takes longer isn't tried with more

std::size_t parts_in(double share, std::size_t parts) {
  return std::max<std::size_t>(1, static_cast<std::size_t>(share * static_cast<double>(parts)));
}

}  // namespace

std::uint32_t Work::kind_of_kernel(std::uint64_t program, std::string_view name) {
  const std::size_t hash = std::hash<std::string_view>{}(name) ^ (program * 0x9e3779b97f4a7c15U);
  return static_cast<std::uint32_t>(hash >> 32U) | 1U;
}

Turn::Known& Turn::known_of(const Work& work) {
  const auto amount = std::min<std::size_t>(std::bit_width(work.amount), kAmounts - 1);
  // The first row is for transfers.
  Known& known = known_[work.kind == Work::kTransfer ? 0 : 1 + work.kind % (kKinds - 1)][amount];
  if (known.cost == 0 && work.kind == Work::kTransfer)
    known.cost = static_cast<float>(kLeast + kPerByte * static_cast<double>(work.amount));
  return known;
}

bool Turn::is_done(const Chunk& chunk) {
  return std::all_of(chunk.marks.begin(), chunk.marks.end(),
                     [](const auto& mark) { return !mark->event || is_finished(mark->event); });
}

void Turn::enter(cl_command_queue queue, const Work& work) {
  Lock lock{mutex_};
  Known& known = known_of(work);
  const double cost = known.cost == 0 ? kUnknown : known.cost;
  if (is_current_full() || (current_.cost > 0 && cost >= kLongest)) mark();
  while (under_way_.size() > kMostChunks) wait_for_first(lock);  // of who doesn't ask for room
  while (!is_open_) {
    lock.unlock();
    take();
    lock.lock();
  }
  ++inside_;
  ++sent_;
  last_queue_ = queue;
  if (current_.cost == 0) current_.began = Clock::now();
  current_.cost += cost;
  if (std::find(current_.queues.begin(), current_.queues.end(), queue) == current_.queues.end())
    current_.queues.push_back(queue);
  auto kind =
      std::find_if(current_.kinds.begin(), current_.kinds.end(), [&](const auto& one) { return one.known == &known; });
  if (kind == current_.kinds.end() && current_.kinds.size() < kMostKinds)
    kind = current_.kinds.insert(kind, {&known, 0});
  if (kind != current_.kinds.end() && ++kind->count >= known.most) current_.has_most = true;
  if (work.is_piece) current_.has_most = true;
  if (known.most == 1) current_.is_trial = true;
  if (std::exchange(known.values, work.values) != work.values) ++known.changes;
}

// What is waited for where it was sent tells how long it took, whether or not there is a marker behind it by now.
void Turn::saw_end_of(cl_command_queue queue, Clock::time_point since, std::uint64_t sent) {
  Lock lock{mutex_};
  if (sent == sent_ && is_all_of(queue)) saw_end(lock, since);
}

void Turn::saw_end_of_event(std::uint64_t event, Clock::time_point since) {
  Lock lock{mutex_};
  if (event != 0 && event == last_event_ && is_all_of(last_queue_)) saw_end(lock, since);
}

// Whether all that is not known to have ended is of that queue.
bool Turn::is_all_of(cl_command_queue queue) const {
  const auto is_of_queue = [&](const auto& mark) { return mark->queue == queue; };
  return inside_ == 0 &&
         std::count(current_.queues.begin(), current_.queues.end(), queue) == std::ssize(current_.queues) &&
         std::all_of(under_way_.begin(), under_way_.end(), [&](const auto& chunk) {
           return std::all_of(chunk->marks.begin(), chunk->marks.end(), is_of_queue);
         });
}

void Turn::saw_end(Lock& lock, Clock::time_point since) {
  const Ended how = Clock::now() - since > kWaited ? Ended::where_sent : Ended::before;
  const Chunk last = std::exchange(current_, {});
  const auto before = under_way_;  // it may change in a wait
  for (const auto& chunk : before) {
    const bool is_last = chunk == before.back() && last.queues.empty();
    if (!under_way_.empty() && under_way_.front() == chunk) end_first(lock, is_last ? how : Ended::before);
  }
  if (!last.queues.empty()) learn(last, Clock::now(), how);
}

void Turn::leave(std::uint64_t event) {
  const std::lock_guard lock{mutex_};
  last_event_ = event;
  if (--inside_ == 0) changed_.notify_all();
}

// Two chunks are under way, the one that grows and the one before, so that the device always has something to do. And
// nothing is behind a long command, or one that may be.
bool Turn::is_full() const {
  const double longest = is_wanted() ? 2 * kPiece : kLongest;
  return under_way_.size() > 1 || std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& chunk) {
           return chunk->cost >= longest || chunk->is_trial;
         });
}

bool Turn::is_current_full() const { return current_.cost >= (is_wanted() ? kPiece : kChunk) || current_.has_most; }

double Turn::piece_cost() const { return Clock::now() - last_wanted_ < kAlone ? kPiece : kPieceAlone; }

bool Turn::is_new(const Known& known, const Work& work) {
  return known.cost == 0 || (known.values != work.values && known.changes < kTrusted);
}

std::size_t Turn::first_parts(const Work& whole, std::size_t parts) {
  const Lock lock{mutex_};
  const Known& known = known_of(whole);
  const std::size_t most = is_new(known, whole) ? parts / kProbes + 1 : parts;
  return known.cost < 2 * kLongest ? most : std::min(most, parts_in(piece_cost() / known.cost, parts));
}

std::size_t Turn::next_parts(const Work& sent, std::size_t parts) {
  const Lock lock{mutex_};
  const double cost = known_of(sent).cost;
  const double best = piece_cost();
  if (cost == 0 || (cost > best / 2 && cost < best * kEnough)) return parts;
  return parts_in(std::min(best / cost, kMostLonger), parts);
}

// A device may run more work-groups at once than it has cores. Whether it does is seen when it is tried, and tried
// again now and then.
std::size_t Turn::widened(const Work& whole, std::size_t wanted, std::size_t parts, std::size_t all) {
  const Lock lock{mutex_};
  const bool is_alone = piece_cost() == kPieceAlone;
  if (is_new(known_of(whole), whole) || (!is_alone && parts < 2 * wanted)) return parts;
  const auto cost_of = [&](std::size_t some) -> float& {
    const double share = static_cast<double>(some) / static_cast<double>(all);
    const double amount = std::round(share * static_cast<double>(whole.amount));
    return known_of({whole.kind, static_cast<std::uint64_t>(amount)}).cost;
  };
  const double least = cost_of(parts);
  if (least <= piece_cost() / 2) return parts;
  for (; parts < all; parts *= 2) {
    const double cost = cost_of(parts);
    float& twice = cost_of(2 * parts);
    if (twice == 0) return cost < kMostForTrial ? 2 * parts : parts;
    if (twice > std::min(cost * kHardlyLonger, 2 * least)) {
      twice *= kForgets;
      return parts;
    }
  }
  return all;
}

void Turn::note_whole(const Work& whole, const Work& piece, double times) {
  const Lock lock{mutex_};
  const float cost = known_of(piece).cost;
  if (cost == 0) return;
  Known& known = known_of(whole);
  known.cost = cost * static_cast<float>(times);
  if (std::exchange(known.values, whole.values) != whole.values) ++known.changes;
}

bool Turn::has_room() {
  Lock lock{mutex_};
  if (is_current_full()) mark();
  while (is_full() && is_done(*under_way_.front())) wait_for_first(lock);
  return is_open_ && !is_recalled() && !is_full();
}

void Turn::wait_for_room() {
  Lock lock{mutex_};
  for (;;) {
    if (is_wanted()) last_wanted_ = Clock::now();
    if (is_current_full()) mark();
    if (is_open_ && is_recalled()) {
      changed_.wait_for(lock, kUntilBack, [this] { return !is_open_; });
    } else if (is_full()) {
      wait_for_first(lock);
    } else if (!is_open_) {
      lock.unlock();
      const auto since = Clock::now();
      take();
      lock.lock();
      if (Clock::now() - since > kPromptly) last_wanted_ = Clock::now();
    } else {
      return;
    }
  }
}

// What was sent since is to be waited for. The marker of who is just being given to the driver would come before it.
void Turn::mark() {
  if (current_.queues.empty() || inside_ != 0) return;
  auto chunk = std::make_shared<Chunk>(std::move(current_));
  current_ = {};
  for (cl_command_queue queue : chunk->queues) {
    cl_event event = nullptr;
    if (functions(queue).clEnqueueMarkerWithWaitList(queue, 0, nullptr, &event) != CL_SUCCESS) continue;
    functions(queue).clFlush(queue);
    chunk->marks.push_back(std::make_shared<Mark>(Mark{queue, event}));
  }
  chunk->queues.clear();
  under_way_.push_back(std::move(chunk));
}

// Others may have waited for it, too, and be faster.
void Turn::wait_for_first(Lock& lock) {
  const std::shared_ptr<Chunk> chunk = under_way_.front();
  bool was_waited_for = false;
  const auto marks = chunk->marks;
  for (const auto& mark : marks) {
    if (!mark->event || is_finished(mark->event)) continue;
    was_waited_for = true;
    ++mark->waiters;
    lock.unlock();
    functions(mark->event).clWaitForEvents(1, &mark->event);
    lock.lock();
    if (--mark->waiters == 0) changed_.notify_all();
  }
  if (under_way_.empty() || under_way_.front() != chunk) return;
  end_first(lock, was_waited_for ? Ended::waited_for : Ended::before);
}

void Turn::end_first(Lock& lock, Ended how) {
  const std::shared_ptr<Chunk> chunk = under_way_.front();
  learn(*chunk, Clock::now(), how);
  under_way_.pop_front();
  for (const auto& mark : chunk->marks) {
    changed_.wait(lock, [&] { return mark->waiters == 0; });
    if (cl_event event = std::exchange(mark->event, nullptr)) functions(event).clReleaseEvent(event);
  }
}

// When a chunk ended is known if somebody waited for it; else it was some time before now. It began when it was sent,
// or when the one before ended, if that is known; and where threads have to wait for a core it isn't known well, so at
// least half of the time counts. Within these bounds it took what was expected.
void Turn::learn(const Chunk& chunk, Clock::time_point ended, Ended how) {
  const auto nanoseconds = [&](Clock::time_point since) {
    return static_cast<double>(std::chrono::nanoseconds{ended - since}.count());
  };
  const bool is_known = how != Ended::before;
  const double since_sent = std::max(1.0, nanoseconds(chunk.began));
  const double least = is_known ? std::max(nanoseconds(std::max(chunk.began, last_ended_)), since_sent / 2) : 1;
  const double took = std::clamp(chunk.cost, least, is_known && is_last_known_ ? least : since_sent);
  last_ended_ = ended;
  is_last_known_ = is_known;
  for (const auto& [known, count] : chunk.kinds) {
    if (known->cost == 0) {
      known->cost = static_cast<float>(std::max(kLeast, took));
      continue;
    }
    if (since_sent > chunk.cost && !is_known) continue;
    if (took > chunk.cost * kAsBefore && took > kChunk) {
      known->most = 1;
      known->changes = 0;
    } else if (how != Ended::where_sent && count >= known->most) {
      known->most = std::min(2 * known->most, kMostOfKind);
    }
    known->cost =
        static_cast<float>(std::max(kLeast, known->cost * std::clamp(took / chunk.cost, kLeastGrowth, kMostGrowth)));
  }
}

void Turn::wait_for_all(Lock& lock) {
  mark();
  while (!under_way_.empty()) wait_for_first(lock);
}

void Turn::open() {
  const std::lock_guard lock{mutex_};
  is_open_ = true;
}

bool Turn::is_open() {
  const std::lock_guard lock{mutex_};
  return is_open_;
}

void Turn::stop() {
  Lock lock{mutex_};
  is_open_ = false;
  changed_.notify_all();
  changed_.wait(lock, [this] { return inside_ == 0; });
  wait_for_all(lock);
}

std::uint64_t Turn::wait_for_sent() {
  Lock lock{mutex_};
  changed_.wait(lock, [this] { return inside_ == 0; });
  const std::uint64_t sent = sent_;
  mark();
  const std::shared_ptr<Chunk> last = under_way_.empty() ? nullptr : under_way_.back();
  while (last && std::find(under_way_.begin(), under_way_.end(), last) != under_way_.end()) wait_for_first(lock);
  return sent;
}

std::uint64_t Turn::sent() {
  const std::lock_guard lock{mutex_};
  return sent_;
}

bool Turn::is_idle() {
  const std::lock_guard lock{mutex_};
  mark();
  return inside_ == 0 &&
         std::all_of(under_way_.begin(), under_way_.end(), [](const auto& chunk) { return is_done(*chunk); });
}

void Turn::forget(cl_command_queue queue) {
  Lock lock{mutex_};
  std::erase(current_.queues, queue);
  const auto all = under_way_;  // it may change in a wait
  for (const auto& chunk : all) {
    for (const auto& mark : chunk->marks) {
      if (mark->queue != queue) continue;
      changed_.wait(lock, [&] { return mark->waiters == 0; });
      if (cl_event event = std::exchange(mark->event, nullptr)) functions(event).clReleaseEvent(event);
    }
  }
}

}  // namespace grus
