// Session: launches.
#include <array>
#include <cstring>

#include "server/session.hpp"

namespace grus::server {

using channel::Head;
using wire::BadMessage;
using wire::Reader;

namespace {

constexpr std::chrono::seconds kKeepsMemory{1};  // a kernel that runs in pieces, whoever else needs it

}  // namespace

// What the arguments name must be there: vendors take a null for a buffer that was never made.
void Session::check_arguments(Kernel& kernel) {
  kernel.code = CL_SUCCESS;
  kernel.has_unclear = false;
  for (const Argument& argument : kernel.arguments) {
    if (argument.holds == Argument::Holds::sampler) check(ObjectType::sampler, argument.object);
    if (argument.holds != Argument::Holds::memory || !argument.object) continue;
    const cl_int* const found = known(ObjectType::memory).find(argument.object);
    const cl_int code = found ? *found : CL_INVALID_MEM_OBJECT;
    if (code != CL_SUCCESS) kernel.code = code;
    if (code == CL_SUCCESS && !is_clear(memories_[argument.object.value()])) kernel.has_unclear = true;
  }
  kernel.checked_at = memory_changes_;
}

void Session::launch(const Head&, Reader& reader) {
  Place place = read_place(reader);
  command::Launch launch;
  reader(launch.kernel, launch.stamp);
  cl_int code = check(ObjectType::kernel, launch.kernel);
  Kernel& kernel = kernels_[launch.kernel.value()];
  for (auto left = reader.take<std::uint32_t>(); left != 0; --left) {
    const auto index = reader.take<std::uint32_t>();
    if (index >= kernel.arguments.size()) throw BadMessage{"an argument that the kernel doesn't have"};
    kernel.arguments[index].object = {};
    reader(kernel.arguments[index]);
    kernel.checked_at = 0;
  }
  if (kernel.checked_at != memory_changes_) check_arguments(kernel);
  if (code == CL_SUCCESS) code = kernel.code;
  launch.arguments = kernel.arguments;
  reader(launch.dimensions);
  if (launch.dimensions > 3) throw BadMessage{"a launch of more than three dimensions"};
  std::array<Triple, 3> sizes{};
  int next = 0;
  for (const std::size_t** values : {&launch.offset, &launch.global, &launch.local}) {
    Triple& own = sizes[next++];
    if (reader.take<std::uint8_t>() == 0) continue;
    std::memcpy(own.data(), reader.take_bytes(launch.dimensions * sizeof(std::size_t)).data(),
                launch.dimensions * sizeof(std::size_t));
    *values = own.data();
  }
  if (code == CL_SUCCESS) code = place.code;
  if (code == CL_SUCCESS && !is_deferred_ && terms_.goes_in_pieces && terms_.goes_in_pieces(launch, place.queue)) {
    takes_long_ = true;
    return;
  }
  Residency::Lock use;
  if (code == CL_SUCCESS) code = prepare_arguments(kernel, place, use);
  launch.stamp += kernel.returns;
  std::optional<Cut> cut;
  if (is_deferred_ && residency_.is_on())
    cut_ = &cut.emplace(Cut{launch, kernel, use, std::chrono::steady_clock::now()});
  if (code == CL_SUCCESS && !place.event && is_finished_next(place.queue)) awaited_ = new_own_id();
  const ObjectId event = awaited_ ? awaited_ : place.event;
  if (code == CL_SUCCESS) code = executor_.submit(launch, {place.queue, place.waits, event, Blocking::no});
  cut_ = nullptr;
  if (code != CL_SUCCESS) free_own_slot(std::exchange(awaited_, {}));
  note_result(place, code);
}

// Whether the client waits for nothing but what it is about to launch. What is deferred isn't handled by who reads.
bool Session::is_finished_next(ObjectId queue) {
  const Queue& state = *queues_.at(queue.value());
  if (!state.is_called_back || !state.in_order || terms_.turn_at) return false;
  const auto next = input_.peek(channel::Kind::finish);
  return next && Reader{*next}.take<ObjectId>() == queue;
}

// If it waits for one launch the driver's thread answers, so that nobody has to be woken for that but the client.
void Session::finish(const Head& head, ObjectId queue) {
  if (queue.slot() >= kMaxSlots) throw BadMessage{"an id that can't be"};
  // A queue that the client has released may still have work, and the executor knows of it.
  const auto known = queues_.find(queue.value());
  const auto state = known == queues_.end() ? nullptr : known->second;
  const auto finished = [this, number = head.number, queue, state, last = state ? state->last : 0](cl_int code) {
    if (state) state->is_done(last);
    {
      const std::lock_guard lock{errors_mutex_};
      if (const auto failed = queue_errors_.find(queue.value()); failed != queue_errors_.end()) {
        code = failed->second;
        queue_errors_.erase(failed);
      }
    }
    send_output();
    answer(number, code);
  };
  if (const ObjectId launched = std::exchange(awaited_, {})) {
    const cl_int refused = executor_.when_event(launched, CL_COMPLETE, finished);
    free_own_event(launched);
    executor_.flush(queue);
    if (refused == CL_SUCCESS) return;
  }
  aside(head, [this, queue, finished] { finished(executor_.finish(queue)); });
}

cl_int Session::use_arguments(const Kernel& kernel, Residency::Lock& use) {
  if (!residency_.is_on()) return CL_SUCCESS;
  used_.clear();
  for (const Argument& argument : kernel.arguments) {
    if (argument.holds == Argument::Holds::memory && argument.object) used_.push_back(argument.object);
  }
  return residency_.use(used_, use);
}

cl_int Session::prepare_arguments(Kernel& kernel, Place& place, Residency::Lock& use) {
  const cl_int failed = use_arguments(kernel, use);
  return failed == CL_SUCCESS && kernel.has_unclear ? clear_arguments(kernel, place) : failed;
}

// The driver knows it by another handle: arguments are set anew for that.
void Session::note_return(ObjectId buffer) {
  constexpr std::uint64_t kOtherStamp = std::uint64_t{1} << 48U;  // clients count from 1
  for (auto& [id, kernel] : kernels_) {
    for (Argument& argument : kernel.arguments) {
      if (argument.holds != Argument::Holds::memory || argument.object != buffer) continue;
      argument.stamp += kOtherStamp;
      kernel.returns += kOtherStamp;
    }
  }
}

cl_int Session::wait_for_room(Turn& turn) {
  using Clock = std::chrono::steady_clock;
  state_mutex_.unlock();
  turn.wait_for_room();
  state_mutex_.lock();
  if (!cut_ || !residency_.is_to_move_out() || Clock::now() - cut_->since < kKeepsMemory) return CL_SUCCESS;
  const std::uint64_t returns = cut_->kernel.returns;
  cut_->use.unlock();
  residency_.wait_until_moved_out();
  const cl_int code = use_arguments(cut_->kernel, cut_->use);
  cut_->launch.stamp += cut_->kernel.returns - returns;
  cut_->since = Clock::now();
  return code;
}

}  // namespace grus::server
