// Session: memory is cleared before it is used for the first time, since the device may have had others' data in it.
// The clear is queued where the first command goes, so nobody waits for it, and what is never used is never cleared.
#include "memory/copy.hpp"
#include "server/session.hpp"

namespace grus::server {

bool Session::is_done(Clearing& clearing) {
  if (!clearing.event) return true;
  const auto status = executor_.event_status(clearing.event);
  if (!status || *status != CL_COMPLETE) return false;
  free_own_event(clearing.event);
  clearing.event = {};
  return true;
}

bool Session::is_clear(Memory& memory) {
  if (memory.clearing && is_done(*memory.clearing)) memory.clearing.reset();
  return !memory.may_be_foreign && !memory.clearing;
}

// An own event tells when it is done: other queues may use the object before this one comes to it.
cl_int Session::clear(ObjectId id, Memory& memory, ObjectId queue) {
  while (!clearings_.empty() && is_done(*clearings_.front())) clearings_.pop_front();
  const ObjectId event = new_own_id();
  const Placement placement{queue, {}, event, Blocking::no};
  const cl_int code = memory.type == CL_MEM_OBJECT_BUFFER
                          ? executor_.submit(memory::zeroes(id, {0, memory.size}), placement)
                          : executor_.submit(command::FillImage{{id}, {}, {{}, memory.region}}, placement);
  if (code != CL_SUCCESS) {
    free_own_slot(event);
    return code;
  }
  memory.may_be_foreign = false;
  if (!event) return executor_.finish(queue);
  memory.clearing = std::make_shared<Clearing>(Clearing{queue, event});
  clearings_.push_back(memory.clearing);
  return CL_SUCCESS;
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
    kernel.has_unclear = kernel.has_unclear || !is_clear(memories_[argument.object.value()]);
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
  executor_.flush(queue);
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
