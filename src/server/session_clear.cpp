// Session: memory is cleared before it is used for the first time, since the device may have had others' data in it.
// The clear is queued where the first command goes, so nobody waits for it, and what is never used is never cleared.
// Nor is what is written first, from the beginning on: on a busy device the copy needs none of its cores, and a clear
// does.
#include "memory/copy.hpp"
#include "server/session.hpp"

namespace grus::server {

cl_int Session::status_of(Clearing& clearing) {
  if (!clearing.event) return clearing.status;
  const auto status = executor_.event_status(clearing.event);
  if (!status || *status > CL_COMPLETE) return CL_QUEUED;
  past_clears_.push_back(clearing.event);
  clearing.event = {};
  return clearing.status = *status;
}

bool Session::is_clear(Memory& memory) {
  const cl_int status = memory.clearing ? status_of(*memory.clearing) : CL_COMPLETE;
  if (status <= CL_COMPLETE) memory.clearing.reset();
  if (status < CL_COMPLETE) {  // a command before it had failed, and the driver gave up all of them
    memory.may_be_foreign = true;
    memory.own_until = 0;
    memory.written_in = {};
    ++memory_changes_;
  }
  if (memory.may_be_foreign && memory.own_until == memory.size && is_written(memory)) memory.may_be_foreign = false;
  return !memory.may_be_foreign && !memory.clearing;
}

// What was sent for it so far.
bool Session::is_written(const Memory& memory) const {
  if (!memory.written_in) return true;
  const auto queue = queues_.find(memory.written_in.value());
  return queue != queues_.end() && queue->second->done.load(std::memory_order_acquire) >= memory.written_by;
}

// An own event tells when it is done: other queues may use the object before this one comes to it.
cl_int Session::clear(ObjectId id, Memory& memory, ObjectId queue) {
  while (!clearings_.empty() && status_of(*clearings_.front()) <= CL_COMPLETE) clearings_.pop_front();
  if (!is_written(memory)) queue = memory.written_in;
  const ObjectId event = new_own_id();
  const Placement placement{queue, {}, event, Blocking::no};
  const Range rest{memory.own_until, memory.size - memory.own_until};
  const cl_int code = memory.type != CL_MEM_OBJECT_BUFFER
                          ? executor_.submit(command::FillImage{{id}, {}, {{}, memory.region}}, placement)
                      : rest.size != 0 ? executor_.submit(memory::zeroes(id, rest), placement)
                                       : executor_.submit(command::Marker{}, placement);
  if (code != CL_SUCCESS) {
    free_own_slot(event);
    return code;
  }
  memory.may_be_foreign = false;
  if (!event) return executor_.finish(queue);
  memory.clearing = std::make_shared<Clearing>(Clearing{queue, event, CL_QUEUED});
  clearings_.push_back(memory.clearing);
  return CL_SUCCESS;
}

// Whether that is the next part of memory that was written from the beginning on, and nothing can come between.
bool Session::goes_on(ObjectId id, const Range& range, ObjectId queue) const {
  const Memory& memory = memories_.at(id.value());
  return memory.may_be_foreign && range.offset == memory.own_until &&
         (memory.written_in == queue || is_written(memory)) && queues_.at(queue.value())->in_order;
}

void Session::note_written(ObjectId id, const Range& range, ObjectId queue) {
  Memory& memory = memories_[id.value()];
  memory.own_until += range.size;
  memory.written_in = queue;
  memory.written_by = queues_.at(queue.value())->last;
}

// Else nobody would know any more when it is written.
void Session::settle_what_is_written_in(ObjectId queue) {
  for (auto& [id, memory] : memories_) {
    if (memory.written_in != queue) continue;
    const bool is_there = is_written(memory);
    if (!is_there && memory.may_be_foreign && clear(ObjectId::of(id), memory, queue) != CL_SUCCESS)
      memory.own_until = 0;
    memory.written_in = {};
  }
}

cl_int Session::clear_before(ObjectId id, Place& place) {
  const auto found = memories_.find(id.value());
  if (found == memories_.end() || is_clear(found->second)) return CL_SUCCESS;
  Memory& memory = found->second;
  if (memory.may_be_foreign) {
    if (const cl_int code = clear(id, memory, place.queue); code != CL_SUCCESS) return code;
  }
  const Queue& queue = *queues_[place.queue.value()];
  if (!memory.clearing || (memory.clearing->queue == place.queue && queue.in_order)) return CL_SUCCESS;
  // Else it might never begin. What is gone was flushed when it went.
  if (known(ObjectType::queue).find(memory.clearing->queue)) executor_.flush(memory.clearing->queue);
  waits_.push_back(memory.clearing->event);
  place.waits = waits_;
  return CL_SUCCESS;
}

cl_int Session::clear_arguments(Kernel& kernel, Place& place) {
  kernel.has_unclear = false;
  for (const Argument& argument : kernel.arguments) {
    if (argument.holds != Argument::Holds::memory || !argument.object) continue;
    if (const cl_int code = clear_before(argument.object, place); code != CL_SUCCESS) {
      kernel.has_unclear = true;
      return code;
    }
    const Memory& memory = memories_[argument.object.value()];
    kernel.has_unclear = kernel.has_unclear || memory.may_be_foreign || memory.clearing;
  }
  return CL_SUCCESS;
}

// Pages are read and written by what knows of no other command.
void Session::clear_for_pages(ObjectId id, ObjectId queue) {
  Memory& memory = memories_[id.value()];
  if (is_clear(memory)) return;
  if (memory.may_be_foreign) memory::check(clear(id, memory, queue), "clearing memory");
  if (memory.clearing) memory::check(executor_.wait({&memory.clearing->event, 1}), "clearing memory");
}

// A view has no clear of its own: two that overlap would take each other's data away.
cl_int Session::clear_for_view(ObjectId id) {
  Memory& memory = memories_[id.value()];
  if (!memory.may_be_foreign) return CL_SUCCESS;
  const ObjectId queue = own_queue_of(memory.context);
  if (!queue) return CL_OUT_OF_RESOURCES;
  const cl_int code = clear(id, memory, queue);
  if (memory.clearing) executor_.flush(memory.clearing->queue);
  return code;
}

ObjectId Session::own_queue_of(ObjectId context) {
  constexpr std::array<cl_queue_properties, 2> kOwn{kOwnQueue, 1};
  ObjectId& queue = own_queues_[context.value()];
  if (queue) return queue;
  const ObjectId device = context_places_[context.value()].device;
  const ObjectId id = known(ObjectType::device).find(device) ? new_own_id() : ObjectId{};
  if (!id) return {};
  if (executor_.create_queue(id, context, device, kOwn) != CL_SUCCESS) {
    free_own_slot(id);
    return {};
  }
  return queue = id;
}

}  // namespace grus::server
