// RemoteExecutor: commands, and waiting for them.
#include <algorithm>

#include "base/log.hpp"
#include "command/callbacks.hpp"
#include "executor/remote.hpp"
#include "executor/remote_place.hpp"

namespace grus {

using channel::Kind;
using channel::kind_of;

namespace {

// Only what the worker's kernel doesn't have yet.
struct ChangedArguments {
  std::span<const Argument> arguments;
  std::span<const std::uint64_t> stamps;
};
void fields(wire::Writer& writer, const ChangedArguments& changed) {
  std::uint32_t count = 0;
  for (std::size_t index = 0; index < changed.arguments.size(); ++index)
    count += changed.arguments[index].stamp != changed.stamps[index] ? 1 : 0;
  writer(count);
  for (std::uint32_t index = 0; index < changed.arguments.size(); ++index) {
    if (changed.arguments[index].stamp != changed.stamps[index]) writer(index, changed.arguments[index]);
  }
}

struct Sizes {
  const std::size_t* values;
  cl_uint dimensions;
};
void fields(wire::Writer& writer, const Sizes& sizes) {
  writer(std::uint8_t{sizes.values != nullptr});
  if (sizes.values) writer.add(sizes.values, sizes.dimensions * sizeof(std::size_t));
}

}  // namespace

// With the connection's lock.
bool RemoteExecutor::has_coming(ObjectId queue, const Reads& before) const {
  return std::any_of(coming_.begin(), coming_.end(), [&](const auto& entry) {
    const auto& [number, coming] = entry;
    const bool counts = before.whose == Whose::all || !coming.is_own;
    return (number <= before.any && counts) || (number <= before.own && coming.queue == queue);
  });
}

void RemoteExecutor::wait_for_reads(ObjectId queue, const Reads& before) {
  if (before.own != 0 || before.any != 0) connection_->wait_until([&] { return !has_coming(queue, before); });
}

// With the connection's lock.
void RemoteExecutor::after_reads(ObjectId queue, const Reads& before, std::function<void()> call) {
  if (has_coming(queue, before)) {
    parked_.push_back({queue, before, std::move(call)});
  } else {
    call();
  }
}

// With the connection's lock.
void RemoteExecutor::read_has_come(ReadNumber number) {
  coming_.erase(number);
  std::vector<std::function<void()>> calls;
  std::erase_if(parked_, [&](Parked& parked) {
    if (has_coming(parked.queue, parked.before)) return false;
    calls.push_back(std::move(parked.call));
    return true;
  });
  for (const auto& call : calls) call();
}

// With the connection's lock: what comes before a command counts for its event and for what follows in its queue.
RemoteExecutor::Reads RemoteExecutor::note_place(const Placement& placement, ReadNumber read, std::uint64_t turn) {
  Reads& last = reads_[placement.queue.value()];
  for (const ObjectId wait : placement.waits) {
    const auto event = events_.find(wait.value());
    if (event == events_.end()) continue;
    last.any = std::max(last.any, event->second.before.any);
    if (event->second.queue != placement.queue) last.any = std::max(last.any, event->second.before.own);
  }
  if (read != 0) last.own = read;
  if (placement.event) events_[placement.event.value()] = {placement.queue, last, turn, CL_QUEUED};
  return last;
}

// With the queue's mutex, from here until the command is told.
RemoteExecutor::Reads RemoteExecutor::note_turn(RemoteQueue& queue, const Placement& placement, ReadNumber read) {
  ++queue.last;
  if (read == 0 && !placement.event && placement.waits.empty()) return {};
  return connection_->with_lock([&] { return note_place(placement, read, queue.last); });
}

template <typename Command>
cl_int RemoteExecutor::tell(const Command& command, const Placement& placement) {
  if (connection_->is_lost()) return kLost;
  RemoteQueue& queue = *queues_[placement.queue];
  const std::lock_guard turn{queue.mutex};
  note_turn(queue, placement, 0);
  connection_->tell(kind_of<Command>(), Place{placement}, command);
  return CL_SUCCESS;
}
template cl_int RemoteExecutor::tell(const command::Marker&, const Placement&);

cl_int RemoteExecutor::submit(const command::Launch& launch, const Placement& placement) {
  if (connection_->is_lost()) return kLost;
  RemoteKernel& kernel = *kernels_[launch.kernel];
  // What drivers say; from the server it would come too late.
  if (launch.local && kernel.required_group[0] != 0 &&
      !std::equal(launch.local, launch.local + launch.dimensions, kernel.required_group.begin()))
    return CL_INVALID_WORK_GROUP_SIZE;
  RemoteQueue& queue = *queues_[placement.queue];
  const std::lock_guard turn{queue.mutex};
  note_turn(queue, placement, 0);
  const std::lock_guard lock{kernel.lock};
  const bool same = kernel.stamp == launch.stamp;
  const ChangedArguments changed{same ? std::span<const Argument>{} : launch.arguments, kernel.stamps};
  connection_->tell(kind_of<command::Launch>(), Place{placement}, launch.kernel, launch.stamp, changed,
                    launch.dimensions, Sizes{launch.offset, launch.dimensions}, Sizes{launch.global, launch.dimensions},
                    Sizes{launch.local, launch.dimensions});
  if (same) return CL_SUCCESS;
  for (std::size_t index = 0; index < launch.arguments.size(); ++index)
    kernel.stamps[index] = launch.arguments[index].stamp;
  kernel.stamp = launch.stamp;
  return CL_SUCCESS;
}

cl_int RemoteExecutor::submit(const command::NativeKernel&, const Placement&) { return CL_INVALID_OPERATION; }

cl_int RemoteExecutor::submit(const command::Copy& command, const Placement& placement) {
  if (command.size == 0) return CL_INVALID_VALUE;  // what drivers say; here it would come too late
  return tell(command, placement);
}
cl_int RemoteExecutor::submit(const command::CopyRectangle& command, const Placement& placement) {
  return tell(command, placement);
}
cl_int RemoteExecutor::submit(const command::Fill& command, const Placement& placement) {
  return tell(command, placement);
}
cl_int RemoteExecutor::submit(const command::CopyImage& command, const Placement& placement) {
  return tell(command, placement);
}
cl_int RemoteExecutor::submit(const command::CopyImageToBuffer& command, const Placement& placement) {
  return tell(command, placement);
}
cl_int RemoteExecutor::submit(const command::CopyBufferToImage& command, const Placement& placement) {
  return tell(command, placement);
}
cl_int RemoteExecutor::submit(const command::FillImage& command, const Placement& placement) {
  return tell(command, placement);
}
cl_int RemoteExecutor::submit(const command::Migrate& command, const Placement& placement) {
  return tell(command, placement);
}
cl_int RemoteExecutor::submit(const command::Marker& command, const Placement& placement) {
  return tell(command, placement);
}
cl_int RemoteExecutor::submit(const command::Barrier& command, const Placement& placement) {
  return tell(command, placement);
}

cl_int RemoteExecutor::flush(ObjectId queue) {
  connection_->tell(Kind::flush, queue);
  connection_->flush();
  return connection_->is_lost() ? kLost : CL_SUCCESS;
}

cl_int RemoteExecutor::finish(ObjectId id) {
  RemoteQueue* const queue = queues_[id];  // none if the program has released it
  std::uint64_t turn = 0;
  if (queue) {
    const std::lock_guard lock{queue->mutex};
    turn = queue->last;
  }
  const Reads before = connection_->with_lock([&] {
    const auto found = reads_.find(id.value());
    return found == reads_.end() ? Reads{} : found->second;
  });
  const auto answer = connection_->ask(Kind::finish, id);
  wait_for_reads(id, before);
  if (!answer) return kLost;
  if (queue) queue->is_done(turn);
  return wire::Reader{*answer}.take<cl_int>();
}

RemoteExecutor::RemoteEvent RemoteExecutor::known_event(ObjectId id) {
  return connection_->with_lock([&] {
    const auto found = events_.find(id.value());
    return found == events_.end() ? RemoteEvent{} : found->second;
  });
}

// Once the reads before it have come, too.
void RemoteExecutor::event_has_ended(ObjectId id, cl_int status) {
  const RemoteEvent event = known_event(id);
  wait_for_reads(event.queue, event.before);
  connection_->with_lock([&] {
    if (const auto found = events_.find(id.value()); found != events_.end()) found->second.status = status;
  });
  if (RemoteQueue* const queue = status == CL_COMPLETE ? queues_[event.queue] : nullptr; queue && queue->in_order)
    queue->is_done(event.turn);
}

cl_int RemoteExecutor::wait(std::span<const ObjectId> ids) {
  std::vector<ObjectId> unknown;
  bool failed = false;
  for (const ObjectId id : ids) {
    const cl_int status = known_event(id).status;
    if (status > CL_COMPLETE) unknown.push_back(id);
    failed |= status < CL_COMPLETE;
  }
  cl_int code = CL_SUCCESS;
  if (!unknown.empty()) {
    const auto answer = connection_->ask(Kind::wait, std::span<const ObjectId>{unknown});
    code = answer ? wire::Reader{*answer}.take<cl_int>() : kLost;
    // Of several that were waited for it isn't known which has failed.
    for (const ObjectId id : unknown) event_has_ended(id, code == CL_SUCCESS ? CL_COMPLETE : CL_QUEUED);
  }
  return failed && code == CL_SUCCESS ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : code;
}

Result<cl_int> RemoteExecutor::event_status(ObjectId id) {
  if (const cl_int known = known_event(id).status; known <= CL_COMPLETE) return known;
  const auto answer = connection_->ask(Kind::event_status, id);
  if (!answer) return kLost;
  const auto status = wire::Reader{*answer}.take_result<cl_int>();
  if (status && *status <= CL_COMPLETE) event_has_ended(id, *status);
  return status;
}

Result<cl_ulong> RemoteExecutor::event_profile(ObjectId event, cl_profiling_info query) {
  const auto answer = connection_->ask(Kind::event_profile, event, query);
  if (!answer) return Failure{kLost};
  return wire::Reader{*answer}.take_result<cl_ulong>();
}

// What is called may be the last to hold an object, whose end sends a message: so it is called, and destroyed, on the
// thread for callbacks, and never with the connection's lock.
cl_int RemoteExecutor::when_event(ObjectId id, cl_int status, std::function<void(cl_int)> call) {
  auto reached = [this, id, status, call = std::move(call)](wire::Reader* reader) mutable {
    const cl_int now = reader ? reader->take<cl_int>() : kLost;
    const auto found = events_.find(id.value());
    const RemoteEvent event = found == events_.end() ? RemoteEvent{} : found->second;
    after_reads(event.queue, event.before, [this, id, status, now, call = std::move(call)]() mutable {
      const auto known = events_.find(id.value());
      if (known != events_.end() && (status == CL_COMPLETE || now < 0)) known->second.status = now;
      callbacks::post([now, call = std::move(call)] { call(now); });
    });
  };
  connection_->ask_later({}, std::move(reached), Kind::when_event, id, status);
  return CL_SUCCESS;
}

void RemoteExecutor::when_idle(Whose whose, std::function<void()> call) {
  const auto idle = [this, whose, call = std::move(call)](wire::Reader*) {
    after_reads({}, {0, next_read_ - 1, whose}, call);
  };
  connection_->ask_later({}, idle, Kind::when_idle, whose);
  connection_->flush();
}

cl_int RemoteExecutor::set_queue_property(ObjectId queue, cl_command_queue_properties properties, cl_bool enable,
                                          cl_command_queue_properties* before) {
  const auto answer = connection_->ask(Kind::set_queue_property, queue, properties, enable);
  if (!answer) return kLost;
  wire::Reader reader{*answer};
  const auto code = reader.take<cl_int>();
  const auto told = reader.take<cl_command_queue_properties>();
  if (before) *before = told;
  return code;
}

}  // namespace grus
