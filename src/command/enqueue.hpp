// How a command goes from an API call to the executor: at once, or by way of hold-back.
#pragma once

#include <array>
#include <memory>
#include <type_traits>

#include "command/gate.hpp"
#include "command/hold_back.hpp"

namespace grus {

// Maps and unmaps of objects that live in host memory, if the session moved while they were held back. Where the object
// lives elsewhere now, the pointer stays where it was, and mapping is copying.
template <typename Command>
inline constexpr bool kIsMap =
    std::is_same_v<Command, command::MapBuffer> || std::is_same_v<Command, command::MapImage>;
template <typename Command>
inline constexpr bool kIsUnmap = std::is_same_v<Command, command::Unmap>;

inline cl_int copy_instead(Executor& executor, const command::MapBuffer& map, bool /*is_image*/,
                           const Placement& placement) {
  if (map.flags & CL_MAP_WRITE_INVALIDATE_REGION) return executor.submit(command::Marker{}, placement);
  return executor.submit(command::Read{{map.memory}, map.range, map.pointer}, placement);
}
inline cl_int copy_instead(Executor& executor, const command::MapImage& map, bool /*is_image*/,
                           const Placement& placement) {
  if (map.flags & CL_MAP_WRITE_INVALIDATE_REGION) return executor.submit(command::Marker{}, placement);
  return executor.submit(command::ReadImage{{map.memory}, map.where, map.row_pitch, map.slice_pitch, map.pointer},
                         placement);
}
inline cl_int copy_instead(Executor& executor, const command::Unmap& unmap, bool is_image, const Placement& placement) {
  if (!(unmap.flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)))
    return executor.submit(command::Marker{}, placement);
  if (!is_image) return executor.submit(command::Write{{unmap.memory}, unmap.range, unmap.pointer}, placement);
  return executor.submit(
      command::WriteImage{{unmap.memory}, unmap.where, unmap.row_pitch, unmap.slice_pitch, unmap.pointer}, placement);
}

// Before the executor has it.
template <typename Command>
void note_written(const Command& command) {
  command.each_written([](ObjectId id, auto... range) { slab<Memory>().at(id)->touch(range...); });
}

template <typename Command>
struct HeldAs final : Held {
  Command command;
  typename Command::Storage storage;
  std::vector<Ref<Memory>> memories;
  Ref<Kernel> kernel;
  std::vector<Ref<Sampler>> samplers;
  enum class Instead : std::uint8_t { itself, nothing, copy };
  Instead instead = Instead::itself;
  std::shared_ptr<HostMemory> pointed_to;

  explicit HeldAs(const Command& command_) : command{command_} {
    command.keep(storage);
    command.each_memory([this](ObjectId id) { memories.emplace_back(slab<Memory>().at(id)); });
    if constexpr (std::is_same_v<Command, command::Launch>) {
      kernel = Ref{slab<Kernel>().at(command.kernel)};
      for (const Argument& argument : command.arguments) {
        if (argument.holds == Argument::Holds::sampler) samplers.emplace_back(slab<Sampler>().at(argument.object));
      }
    }
  }
  cl_int submit(Executor& executor, const Placement& placement) override {
    if constexpr (std::is_same_v<Command, command::Launch>) {
      for (const auto& memory : memories) memory->touch();
    } else {
      note_written(command);
    }
    if constexpr (kIsMap<Command> || kIsUnmap<Command>) {
      if (instead == Instead::nothing) return executor.submit(command::Marker{}, placement);
      if (instead == Instead::copy) return copy_instead(executor, command, memories[0]->is_image(), placement);
    }
    return executor.submit(command, placement);
  }
  void session_moves(const Stays& stays) override {
    if constexpr (kIsMap<Command> || kIsUnmap<Command>) {
      if (instead != Instead::itself) return;
      if (!stays(*memories[0])) {
        instead = Instead::copy;
        pointed_to = memories[0]->root().host_memory;
      } else if (kIsUnmap<Command>) {
        instead = Instead::nothing;  // the new driver doesn't know that it was mapped
      }
    }
  }
};

// What an enqueue call says besides the command itself.
struct Enqueue {
  Queue& queue;
  WaitHandles waits;
  cl_event* event_out = nullptr;
  cl_command_type type = 0;
  Blocking blocking = Blocking::no;
  Order order = Order::plain;
};

// Waits for events, wherever they are; the caller is inside the gate and comes back into it.
cl_int wait_for(std::span<Event* const> events);

template <typename Command>
cl_int hold_back(const Command& command, const Enqueue& how, Waits waits) {
  auto held = std::make_unique<HeldAs<Command>>(command);
  held->queue = Ref{&how.queue};
  held->order = how.order;
  for (Event* event : waits) held->waits.emplace_back(event);
  const auto event = Ref<Event>::adopt(slab<Event>().create(*how.queue.context, &how.queue, how.type));
  held->event = event;
  HoldBack::instance().hold(std::move(held));
  if (HoldBack::instance().is_full()) {
    const Gate::Leave leave{Gate::Place::waiting};
    HoldBack::instance().wait_for_room();
  }
  cl_int code = CL_SUCCESS;
  if (how.blocking == Blocking::yes) {
    Event* const waited = event.get();
    code = wait_for({&waited, 1});
  }
  if (how.event_out) *how.event_out = reinterpret_cast<cl_event>(Ref{event}.hand_out());
  return code;
}

// A call that blocks does so outside the gate.
template <typename Command>
[[gnu::always_inline]] inline cl_int submit(const Command& command, const Queue& queue, const Placement& placement) {
  note_written(command);
  Executor& executor = executor_of(queue);
  if (placement.blocking == Blocking::no) return executor.submit(command, placement);
  const Gate::Leave leave{Gate::Place::working};
  return executor.submit(command, placement);
}

// A command that waits for others, has an event, or must be held back.
template <typename Command>
[[gnu::noinline]] cl_int enqueue_in_full(const Command& command, Enqueue how) {
  WaitList list;
  if (const cl_int code = list.check(*how.queue.context, how.waits); code != CL_SUCCESS) return code;
  if (HoldBack::must_hold(how.queue, list.events(), how.order)) return hold_back(command, how, list.events());
  ObjectId few[8];
  std::vector<ObjectId> many;
  if (how.waits.count > std::size(few)) many.resize(how.waits.count);
  ObjectId* const waits = many.empty() ? few : many.data();
  std::size_t count = 0;
  for (const Event* event : list.events()) {
    if (event->place() == Event::Place::below) waits[count++] = event->id();
  }
  Ref<Event> event;
  Placement placement{.queue = how.queue.id(), .waits = {waits, count}, .event = {}, .blocking = how.blocking};
  if (how.event_out) {
    event = Ref<Event>::adopt(slab<Event>().create(*how.queue.context, &how.queue, how.type));
    placement.event = event->id();
  }
  const cl_int code = submit(command, how.queue, placement);
  if (code == CL_SUCCESS && event) {
    event->set_below();
    *how.event_out = reinterpret_cast<cl_event>(event.hand_out());
  }
  return code;
}

template <typename Command>
[[gnu::always_inline]] inline cl_int enqueue(const Command& command, const Enqueue& how) {
  if (!how.waits.none() || how.event_out || !HoldBack::is_empty()) return enqueue_in_full(command, how);
  return submit(command, how.queue, {.queue = how.queue.id(), .waits = {}, .event = {}, .blocking = how.blocking});
}

}  // namespace grus
