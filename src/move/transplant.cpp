// Transplant: what the objects hold, and the switch.
#include "move/transplant.hpp"

#include <algorithm>
#include <array>
#include <thread>

#include "base/log.hpp"
#include "command/gate.hpp"
#include "command/hold_back.hpp"
#include "move/when_idle.hpp"
#include "objects/borrowed_memory.hpp"

namespace grus::move {
namespace {

constexpr auto kWaitForCommands = std::chrono::milliseconds{20};
constexpr std::size_t kWorthAsking = std::size_t{64} << 10;

// Whether only the inventory still knows the object, and its views.
bool is_released(const Memory& memory, const Inventory& all) {
  std::uint32_t views = 0;
  for (const auto& view : all.memories) {
    if (view->parent.get() != &memory) continue;
    if (!is_released(*view, all)) return false;
    ++views;
  }
  return memory.references() == 1 + views;
}

}  // namespace

const Match& Transplant::match_of(Device& device) const {
  const Device& root = root_of(device);
  const auto found =
      std::find_if(matches_.begin(), matches_.end(), [&](const Match& match) { return match.device == &root; });
  if (found == matches_.end()) throw Refused{"the program has begun to use another device"};
  return *found;
}

bool Transplant::shares_host_memory(const Context& context) const {
  return std::all_of(context.devices.begin(), context.devices.end(),
                     [&](const auto& device) { return match_of(*device).shares_host_memory; });
}

// A queue at both sides, for copying alone.
Queue& Transplant::courier_of(Context& context) {
  if (const auto known = couriers_.find(&context); known != couriers_.end()) return *known->second;
  Ref<Queue> courier;
  {
    const Gate::Entry entry{kInternalCall};
    courier = Ref<Queue>::adopt(slab<Queue>().create(context, *context.devices[0]));
  }
  const auto create_at = [&](Executor& executor) {
    const std::array<cl_queue_properties, 4> profiled{kOwnQueue, 1, CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE};
    return executor.create_queue(courier->id(), context.id(), context.devices[0]->id(), profiled);
  };
  Executor& from = executor_of(context);
  cl_int code = create_at(from);
  if (code == CL_SUCCESS) {
    code = create_at(to_);
    if (code != CL_SUCCESS) from.free(ObjectType::queue, courier->id());
  }
  if (code != CL_SUCCESS) {
    const Gate::Entry entry{kInternalCall};
    courier = {};
    throw Refused{fmt::format("no queue to copy with: OpenCL error {}", code)};
  }
  return *couriers_.emplace(&context, std::move(courier)).first->second;
}

// What the device's clock says, by a command of our own; nothing if there is no device.
std::optional<cl_ulong> Transplant::clock_of(Executor& executor, Context& context) {
  const Queue& courier = courier_of(context);
  const auto event = Ref<Event>::adopt(slab<Event>().create(context, nullptr, CL_COMMAND_MARKER));
  const Placement placement{courier.id(), {}, event->id(), Blocking::no};
  if (executor.submit(command::Marker{}, placement) != CL_SUCCESS) return std::nullopt;
  const ObjectId id = event->id();
  const bool is_done = executor.wait({&id, 1}) == CL_SUCCESS;
  const auto time = executor.event_profile(id, CL_PROFILING_COMMAND_END);
  executor.free(ObjectType::event, id);
  if (!is_done || !time) return std::nullopt;
  return *time;
}

// From here on events tell the destination's times, which go on from the source's.
void Transplant::set_clock(Context& context) {
  const auto now = std::chrono::steady_clock::now();
  const auto here = clock_of(executor_of(context), context);
  const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(now - context.clock_read).count();
  context.clock_then = here ? *here + context.clock_offset : context.clock_then + static_cast<cl_ulong>(passed);
  context.clock_read = now;
  if (const auto there = clock_of(to_, context)) context.clock_offset = context.clock_then - *there;
}

std::uint64_t Transplant::bytes_at_stake(const Inventory& all) const {
  std::uint64_t bytes = 0;
  for (const auto& memory : all.memories) {
    const auto twin = twins_.find(memory->id().value());
    if (twin != twins_.end() && twin->second.is_copied) bytes += memory->size;
  }
  return bytes;
}

// A CPU's own work would only be in the way.
bool Transplant::device_compares(bool shares_host_memory) const {
  return how_.kind == memory::Kind::device || (how_.kind == memory::Kind::fitting && !shares_host_memory);
}

memory::DeviceSide* Transplant::source_side(Context& context) {
  const auto [known, is_new] = source_sides_.try_emplace(&context);
  Executor& from = executor_of(context);
  if (is_new && device_compares(context.shares_host_memory()) && from.has_device())
    known->second = memory::DeviceSide::make(from, context, memory::DeviceSide::Role::source);
  return known->second.get();
}

memory::DeviceSide* Transplant::destination_side(Context& context) {
  const auto [known, is_new] = destination_sides_.try_emplace(&context);
  if (is_new && device_compares(shares_host_memory(context)) && to_.has_device())
    known->second = memory::DeviceSide::make(to_, context, memory::DeviceSide::Role::destination);
  return known->second.get();
}

memory::Conveyor& Transplant::conveyor_of(Context& context) {
  auto& conveyor = conveyors_[&context];
  if (!conveyor) {
    const std::size_t slot = source_side(context) ? memory::kSlotSize : memory::kChunk;
    conveyor = std::make_unique<memory::Conveyor>(executor_of(context), to_, context, slot, overlap_);
  }
  return *conveyor;
}

memory::Route Transplant::route_of(Context& context) {
  Executor& from = executor_of(context);
  return {from, to_, courier_of(context).id(), conveyor_of(context), direct_path(from)};
}

// What a buffer holds, where its device works in this process's memory; else null.
const std::byte* Transplant::contents_here(const Memory& memory) {
  const bool is_here =
      !memory.is_image() && memory.host_memory && works_in_place(executor_of(*memory.context), *memory.context);
  return is_here ? memory.host_memory->data() : nullptr;
}

// Null if pages are to be compared. The program's own memory is its own to watch.
std::unique_ptr<memory::WrittenPages> Transplant::watch_pages(Memory& memory) {
  if (how_.kind != memory::Kind::system || !memory::system_watches_pages() || !contents_here(memory)) return nullptr;
  if (!page_watch_) page_watch_ = std::make_shared<memory::PageWatch>();
  return memory::WrittenPages::of(page_watch_, memory.host_memory);
}

// From server to server. Null if there is none, which is said.
memory::DirectPath* Transplant::direct_path(Executor& from) {
  const bool are_servers = !from.is_in_this_process() && from.has_device() && !to_.is_in_this_process() && !is_nowhere_;
  if (!are_servers) return nullptr;
  const auto [known, is_new] = direct_paths_.try_emplace(&from);
  std::string why;
  if (is_new) {
    known->second = memory::DirectPath::open(from, to_, why);
  } else if (known->second && !known->second->why_lost().empty()) {
    why = known->second->why_lost();
    known->second.reset();
  }
  if (!why.empty()) notes_.push_back(fmt::format("memory goes through the program's own process: {}", why));
  return known->second.get();
}

// If it is for the host to compare. False if it must go another way: servers are asked for one object at a time, so
// what is small goes through this process, with many under way.
bool Transplant::copy_directly(const memory::Route& route, const Part& part, memory::Round round,
                               const memory::OnCopied& on_copied) {
  Twin& twin = part.twin;
  if (!route.direct || part.is_image() || (twin.pages && !twin.is_direct)) return false;
  if (part.size() < kWorthAsking) return false;
  twin.is_direct = true;
  try {
    for (const Range& range : part.ranges()) route.direct->copy(route.queue, part.id(), range, how_, round, on_copied);
    return true;
  } catch (const memory::PathLost&) {
    for (auto& [id, other] : twins_) other.is_direct = false;
    direct_path(route.from);  // which says so
    return false;
  }
}

void Transplant::copy_by_host(const memory::Route& route, const Part& part, memory::Round round,
                              const memory::OnCopied& on_copied) {
  const auto& [memory, twin, dirty] = part;
  if (!twin.pages)
    twin.pages =
        std::make_unique<memory::SentPages>(part.is_image() ? memory::packed_size(*memory.image) : part.size(), how_);
  if (part.is_image()) return memory::copy_image(route, memory.id(), *memory.image, *twin.pages, round, on_copied);
  for (const Range& range : part.ranges()) {
    if (part.is_written_by_host()) twin.pages->forget(range);  // it has changed: no need to compare
    memory::copy_buffer(route, part.id(), range, contents_here(memory), *twin.pages, round, on_copied);
  }
}

// What a device compares, or what doesn't come through this process, is a buffer.
void Transplant::bridge_image(const memory::Route& route, const Part& part) {
  Twin& twin = part.twin;
  const bool needs_one = route.direct || source_side(*part.memory.context);
  if (!twin.bridge && !twin.pages && needs_one && route.from.has_device() && to_.has_device())
    twin.bridge = memory::ImageBridge::make(route.from, to_, part.memory);
  if (!twin.bridge) return;
  twin.bridge->fill(route.queue);
  bridges_[twin.bridge.get()] = route.queue;
}

void Transplant::copy_one(const Part& part, Stage stage, const memory::OnCopied& on_copied) {
  const auto& [memory, twin, dirty] = part;
  Context& context = *memory.context;
  const memory::Route route = route_of(context);
  if (const auto contents = route.from.contents_of(memory.id()))
    return memory::copy_contents(route, memory.id(), {contents->data(), memory.size}, on_copied);
  if (!twin.written && !twin.pages) twin.written = watch_pages(memory);
  if (twin.written)
    return memory::copy_written(route, memory.id(), {memory.host_memory->data(), memory.size}, twin.written->take(),
                                on_copied);
  if (memory.is_image()) bridge_image(route, part);
  if (!part.is_image() && !twin.table && !twin.pages) {
    if (memory::DeviceSide* const side = source_side(context)) twin.table = side->make_table(part.size());
  }
  if (twin.table) {
    using Source = memory::DeviceSide::Source;
    const auto source = stage == Stage::running && !twin.bridge ? Source::runs : Source::rests;
    for (const Range& range : part.ranges())
      source_side(context)->copy(route, destination_side(context), {part.id(), part.size(), twin.table.get(), source},
                                 range, on_copied);
    return;
  }
  const auto round = stage == Stage::running ? memory::Round::another_follows : memory::Round::last;
  if (!copy_directly(route, part, round, on_copied)) copy_by_host(route, part, round, on_copied);
}

// Out of the program's own memory, which is gone when it has released the object.
void Transplant::copy_borrowed(const Part& part, Stage stage, const Inventory& all, const memory::OnCopied& on_copied) {
  struct Released {};
  Memory& memory = part.memory;
  BorrowedMemory borrowed{memory};
  const auto check = [&] {
    if (is_released(memory, all)) throw Released{};
  };
  const auto count = [&](const memory::Copied& more) {
    borrowed.give_back();
    on_copied(more);
    borrowed.take();
    check();
  };
  try {
    check();
    copy_one(part, stage, count);
    if (part.twin.table)
      source_side(*memory.context)->finish(route_of(*memory.context), destination_side(*memory.context), count);
  } catch (const Released&) {
  }
}

void Transplant::finish_copies(const memory::OnCopied& on_copied) {
  for (const auto& [context, side] : source_sides_) {
    if (side) side->finish(route_of(*context), destination_side(*context), on_copied);
  }
  for (const auto& [context, conveyor] : conveyors_) conveyor->finish();
  for (const auto& [bridge, queue] : std::exchange(bridges_, {})) bridge->empty(queue);
  for (const auto& [context, courier] : couriers_) {
    if (to_.finish(courier->id()) != CL_SUCCESS) throw Refused{"the destination failed while memory was written"};
  }
}

void Transplant::free_sides() noexcept {
  bridges_.clear();
  direct_paths_.clear();
  conveyors_.clear();  // first: its thread writes by the sides
  for (auto& [memory, twin] : twins_) {
    twin.bridge.reset();
    if (!twin.table) continue;
    for (const auto& [context, side] : source_sides_) {
      if (side && twin.table->fingerprints->context.get() == context) {
        side->free(*twin.table);
        break;
      }
    }
    twin.table.reset();
  }
  source_sides_.clear();
  destination_sides_.clear();
}

// What was touched since it was copied last, and what was read while commands from before might still have written.
memory::Copied Transplant::copy(const Inventory& all, Stage stage, const memory::OnCopied& on_copied) {
  memory::Copied sum;
  std::vector<Part> parts;
  std::set<Executor*> sources;
  for (const auto& memory : all.memories) {
    const auto twin = twins_.find(memory->id().value());
    if (twin == twins_.end() || !twin->second.is_copied || twin->second.is_settled) continue;
    twin->second.is_settled = stage == Stage::stopped;
    DirtyParts dirty = memory->dirty.take();
    dirty.add(twin->second.suspect);
    if (dirty.empty()) continue;
    parts.push_back({*memory, twin->second, std::move(dirty)});
    sources.insert(&executor_of(*memory->context));
  }
  std::map<Executor*, WhenIdle> idle;
  bool all_sent = true;
  if (stage == Stage::running) {
    // Who has noted what a command writes may not have sent the command yet.
    g_gate.wait_for_those_inside();
    all_sent = g_gate.wait_for_those_working(std::chrono::steady_clock::now() + kWaitForCommands);
    for (Executor* const source : sources) idle.emplace(source, *source);
    for (const auto& [source, when] : idle) (void)when.wait(kWaitForCommands);
  }
  const auto count = [&](const memory::Copied& more) {
    sum += more;
    on_copied(more);
  };
  for (const Part& part : parts) {
    const bool may_change =
        stage == Stage::running && !(all_sent && idle.at(&executor_of(*part.memory.context)).is_done());
    part.twin.suspect = may_change ? part.dirty : DirtyParts{};
    if (part.memory.host && part.memory.host_ptr) {
      copy_borrowed(part, stage, all, count);
    } else {
      copy_one(part, stage, count);
    }
  }
  finish_copies(count);
  return sum;
}

cl_int Transplant::map_again(const Memory& memory, const Mapping& mapping, const Placement& placement) {
  if (!memory.is_image())
    return to_.submit(command::MapBuffer{{memory.id()}, mapping.flags, mapping.range, mapping.pointer}, placement);
  return to_.submit(command::MapImage{{memory.id()},
                                      mapping.flags,
                                      {mapping.origin, mapping.region},
                                      mapping.pointer,
                                      mapping.row_pitch,
                                      mapping.slice_pitch},
                    placement);
}

// The program's pointers stay what they are. Where both sides work in the same memory the new side is told of them;
// elsewhere what is mapped for writing is written whole when it is unmapped.
void Transplant::keep_mappings(Memory& memory, const Twin& twin, const std::shared_ptr<HostMemory>& before) {
  Executor& from = executor_of(*memory.context);
  for (const auto& mapping : memory.mappings) {
    if (Region& region = mapping->staging; region.memory) {  // a copy already; the region is only memory from here on
      if (std::exchange(region.memory->created, false)) regions_left_.emplace_back(&from, region.memory->id());
      continue;
    }
    if (!mapping->pointer) continue;
    const Placement placement{courier_of(*memory.context).id(), {}, {}, Blocking::yes};
    if (from.is_in_this_process()) {
      command::Unmap unmap{};
      unmap.memory = memory.id();
      unmap.pointer = mapping->pointer;
      (void)from.submit(unmap, placement);  // fails for a map that is still held back: nothing is mapped there then
    }
    if (twin.home == Home::shared) {
      const cl_int code = map_again(memory, *mapping, placement);
      if (code != CL_SUCCESS) log::warn("move", "a mapped region can't be mapped again: OpenCL error {}", code);
      continue;
    }
    auto keeper = Ref<Memory>::adopt(slab<Memory>().create(*memory.context, CL_MEM_OBJECT_BUFFER));
    keeper->is_region = true;
    keeper->host = mapping->pointer;
    keeper->host_memory = before;
    keeper->size = 0;  // so that it is never taken for another mapping
    mapping->staging.memory = std::move(keeper);
  }
}

// Commands that the source has finished are finished for good.
void Transplant::leave_events() {
  slab<Event>().each_live([&](Event& event) {
    if (event.place() != Event::Place::below) return;
    Executor& from = executor_of(*event.context);
    std::unique_ptr<Event::Profile> profile;
    if (event.queue && event.queue->profiles()) {
      profile = std::make_unique<Event::Profile>();
      for (cl_profiling_info query = CL_PROFILING_COMMAND_QUEUED; query <= CL_PROFILING_COMMAND_COMPLETE; ++query) {
        const auto time = from.event_profile(event.id(), query);
        const std::size_t place = query - CL_PROFILING_COMMAND_QUEUED;
        (*profile)[place] = time ? *time + event.context->clock_offset : place != 0 ? (*profile)[place - 1] : 0;
      }
    }
    const auto status = from.event_status(event.id());
    events_left_.emplace_back(&from, event.id());
    HoldBack::instance().leave_below(event, status ? std::min(*status, CL_COMPLETE) : status.error(),
                                     std::move(profile));
  });
}

std::set<Executor*> Transplant::take_over(const Inventory& all) {
  // One that was suspended may have many commands held back, and has none below; its mappings are copies already.
  if (std::any_of(all.contexts.begin(), all.contexts.end(),
                  [](const auto& context) { return executor_of(*context).has_device(); })) {
    leave_events();
    HoldBack::instance().session_moves(
        [&](Memory& memory) { return twins_.at(memory.root().id().value()).home == Home::shared; });
  }
  std::map<const Memory*, std::shared_ptr<HostMemory>> before;  // what the objects lived in
  for (const auto& memory : all.memories) before[memory.get()] = memory->root().host_memory;
  for (const auto& memory : all.memories) {
    const Twin& twin = twins_.at(memory->id().value());
    const Twin& root = twins_.at(memory->root().id().value());
    if (memory->parent) {
      // With its parent, which comes first: an image that is a view starts where that does.
      memory->host = memory->parent->host ? memory->parent->host + memory->origin : nullptr;
    } else if (twin.home == Home::own) {
      memory->take_host_memory(twin.memory);
    } else if (twin.home == Home::elsewhere) {
      memory->host = nullptr;
    }
    keep_mappings(*memory, root, before[memory.get()]);
    if (!memory->parent) memory->host_memory = twin.memory;
  }
  for (const auto& program : all.programs) {
    if (program->has_failed()) program->created = false;
  }
  std::set<Executor*> left;
  for (const auto& queue : all.queues) {
    if (queue->profiles() && !timed_.contains(queue->context.get())) {
      timed_.insert(queue->context.get());
      set_clock(*queue->context);
    }
  }
  for (const auto& context : all.contexts) {
    Executor* const source = &executor_of(*context);
    sources_[context.get()] = source;
    left.insert(source);
    context->below.store(&to_, std::memory_order_release);
  }
  for (const Match& match : matches_) {
    match.device->home = {&to_, match.platform};
    match.device->index = match.index;
    match.device->limits.shares_host_memory = match.shares_host_memory;
  }
  for (const auto& device : all.sub_devices) {
    sub_device_sources_[device.get()] = static_cast<Executor*>(device->home.executor);
    device->home = device->parent->home;
    device->limits.shares_host_memory = device->parent->limits.shares_host_memory;
  }
  return left;
}

void Transplant::leave_sources(const Inventory& all) noexcept {
  free_sides();
  const auto free_all = [&](ObjectType type, const auto& objects, auto context_of) {
    for (auto next = objects.rbegin(); next != objects.rend(); ++next)
      sources_.at(context_of(**next))->free(type, (*next)->id());
  };
  const auto own = [](const auto& object) { return object.context.get(); };
  for (const auto& [source, event] : events_left_) source->free(ObjectType::event, event);
  for (const auto& [source, region] : regions_left_) source->free(ObjectType::memory, region);
  free_all(ObjectType::kernel, all.kernels, [](const Kernel& kernel) { return kernel.program->context.get(); });
  free_all(ObjectType::program, all.programs, own);
  free_all(ObjectType::memory, all.memories, own);
  free_all(ObjectType::sampler, all.samplers, own);
  free_all(ObjectType::queue, all.queues, own);
  for (const auto& [context, courier] : couriers_) {
    sources_.at(context)->free(ObjectType::queue, courier->id());
    to_.free(ObjectType::queue, courier->id());
  }
  free_all(ObjectType::context, all.contexts, [](const Context& context) { return &context; });
  for (const auto& device : all.sub_devices)
    sub_device_sources_.at(device.get())->free(ObjectType::device, device->id());
  const Gate::Entry entry{kInternalCall};
  couriers_.clear();
}

void Transplant::undo() noexcept {
  free_sides();
  for (const auto& [context, courier] : couriers_) {
    executor_of(*context).free(ObjectType::queue, courier->id());
    to_.free(ObjectType::queue, courier->id());
  }
  {
    const Gate::Entry entry{kInternalCall};
    couriers_.clear();
  }
  for (const ObjectType type : {ObjectType::kernel, ObjectType::program, ObjectType::memory, ObjectType::sampler,
                                ObjectType::queue, ObjectType::context, ObjectType::device})
    free_gone(type, {});
}

}  // namespace grus::move
