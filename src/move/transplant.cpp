#include "move/transplant.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/log.hpp"
#include "command/gate.hpp"
#include "command/hold_back.hpp"
#include "move/when_idle.hpp"

namespace grus::move {
namespace {

constexpr cl_mem_flags kDeviceAccess = CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY;
constexpr auto kWaitForCommands = std::chrono::milliseconds{20};

void check(cl_int code, const std::string& what) {
  if (code != CL_SUCCESS) throw Refused{fmt::format("the destination can't make {}: OpenCL error {}", what, code)};
}

// What came of the last build, while others may be under way.
struct LastBuild {
  std::shared_ptr<const Recipe> recipe;
  std::vector<DeviceBuild> builds;
  std::uint64_t number = 0;
};

LastBuild last_build_of(Program& program) {
  const std::lock_guard lock{program.mutex};
  return {program.recipe, program.builds, program.build_number};
}

bool has_failed(const std::vector<DeviceBuild>& builds) {
  return std::any_of(builds.begin(), builds.end(),
                     [](const DeviceBuild& build) { return build.status == CL_BUILD_ERROR; });
}

std::vector<ObjectId> ids_of(const std::vector<Ref<Device>>& devices) {
  std::vector<ObjectId> ids;
  ids.reserve(devices.size());
  for (const auto& device : devices) ids.push_back(device->id());
  return ids;
}

// Whether the device is to compare pages. A CPU's own work would only be in the way.
bool compares(const Context& context, bool shares_host_memory) {
  const char* const how = std::getenv("GRUS_FINGERPRINT");
  if (how && std::string_view{how} == "device") return true;
  if (how && std::string_view{how} == "xxh3") return false;
  return !shares_host_memory && !context.devices.empty();
}

}  // namespace

const Match& Transplant::match_of(const Device& device) const {
  const Device& root = root_of(const_cast<Device&>(device));
  const auto found =
      std::find_if(matches_.begin(), matches_.end(), [&](const Match& match) { return match.device == &root; });
  if (found == matches_.end()) throw Refused{"the program has begun to use another device"};
  return *found;
}

bool Transplant::shares_host_memory(const Context& context) const {
  return std::all_of(context.devices.begin(), context.devices.end(),
                     [&](const auto& device) { return match_of(*device).shares_host_memory; });
}

bool Transplant::both_work_in_place(const Context& context) {
  const auto [known, is_new] = in_place_.emplace(&context, false);
  if (!is_new) return known->second;
  Executor& from = executor_of(context);
  known->second = from.is_in_this_process() && to_.is_in_this_process() &&
                  std::all_of(context.devices.begin(), context.devices.end(), [&](const auto& device) {
                    const ObjectId id = device->id();
                    return from.works_in_place(id) && to_.works_in_place(id);
                  });
  return known->second;
}

// The partition is made again, and the other parts of it given back.
void Transplant::make_sub_device(Device& device) {
  if (is_nowhere_) return;
  const auto count = to_.count_sub_devices(device.parent->id(), device.partition.data());
  if (!count || device.number >= *count) throw Refused{"the destination can't be partitioned as the program did"};
  std::vector<Ref<Device>> others;
  std::vector<ObjectId> ids;
  {
    const Gate::Entry entry{kInternalCall};
    for (cl_uint next = 0; next < *count; ++next) {
      others.push_back(Ref<Device>::adopt(slab<Device>().create(device.platform, device.home, device.parent.get())));
      ids.push_back(next == device.number ? device.id() : others.back()->id());
    }
  }
  check(to_.create_sub_devices(device.parent->id(), device.partition.data(), ids), "a sub-device");
  for (const ObjectId id : ids) {
    if (id != device.id()) to_.free(ObjectType::device, id);
  }
  const Gate::Entry entry{kInternalCall};
  others.clear();
}

void Transplant::make_context(Context& context) {
  const auto ids = ids_of(context.devices);
  check(to_.create_context(context.id(), ids, match_of(*context.devices[0]).platform, context.properties_below,
                           context.notice),
        "a context");
}

void Transplant::make_queue(const Queue& queue) {
  std::vector<cl_queue_properties> list = queue.property_list;
  if (list.empty()) list = {CL_QUEUE_PROPERTIES, queue.properties, 0};
  list.pop_back();
  check(to_.create_queue(queue.id(), queue.context->id(), queue.device->id(), list), "a queue");
}

void Transplant::make_sampler(const Sampler& sampler) {
  check(to_.create_sampler({sampler.id(), sampler.context->id(), sampler.normalized, sampler.addressing, sampler.filter,
                            sampler.properties}),
        "a sampler");
}

Transplant::Twin Transplant::twin_for(Memory& memory) {
  Twin twin;
  if (memory.parent) return twin;
  const Context& context = *memory.context;
  if (memory.host && both_work_in_place(context)) {
    twin.home = Home::shared;
    twin.memory = memory.host_memory;
    return twin;
  }
  const std::size_t size = memory.is_image() ? memory::packed_size(*memory.image) : memory.size;
  twin.is_copied = true;
  if (memory.host_ptr) {
    twin.home = Home::programs;
    return twin;
  }
  const bool shares = shares_host_memory(context);
  const bool wants_host = shares || (memory.flags & CL_MEM_ALLOC_HOST_PTR) != 0;
  // An image that was laid out by the source's driver stays so for the program, which maps it as a copy.
  if (!wants_host || (memory.is_image() && !memory.host)) return twin;
  twin.memory = to_.host_memory_for(shares, size);
  if (twin.memory) twin.home = Home::own;
  return twin;
}

cl_int Transplant::make_buffer(Memory& memory, const Twin& twin) {
  if (memory.parent)
    return to_.create_sub_buffer(memory.id(), memory.parent->id(), memory.flags & kDeviceAccess,
                                 {memory.origin, memory.size});
  NewBuffer order;
  order.id = memory.id();
  order.context = memory.context->id();
  order.flags = memory.flags & kDeviceAccess;
  order.properties = memory.properties;
  order.size = memory.size;
  order.host_memory = twin.memory;
  order.host = twin.memory ? twin.memory->data() : static_cast<std::byte*>(memory.host_ptr);
  return to_.create_buffer(order);
}

cl_int Transplant::make_image(Memory& memory, const Twin& twin) {
  NewImage order;
  order.id = memory.id();
  order.context = memory.context->id();
  order.flags = memory.flags & kDeviceAccess;
  order.properties = memory.properties;
  order.format = memory.image->format;
  order.desc = memory.image->desc;
  order.desc.mem_object = nullptr;
  if (memory.parent) {
    order.from = memory.parent->id();
  } else {
    order.host_memory = twin.memory;
    order.host = twin.memory ? twin.memory->data() : static_cast<std::byte*>(memory.host_ptr);
    order.host_bytes = memory::packed_size(*memory.image);
    if (!memory.host_ptr) {
      order.desc.image_row_pitch = 0;
      order.desc.image_slice_pitch = 0;
    } else {
      const Triple extent = memory.image->extent();
      const ImageFacts& facts = *memory.image;
      order.host_bytes = facts.slice_pitch != 0 ? facts.slice_pitch * std::max(extent[2], facts.desc.image_array_size)
                                                : facts.row_pitch * extent[1];
    }
  }
  return to_.create_image(order).error();
}

// False if it is left for later.
bool Transplant::make_memory(Memory& memory, Stage stage) {
  const auto [known, is_new] = twins_.try_emplace(memory.id().value());
  if (is_new) known->second = twin_for(memory);
  const Memory& root = memory.root();
  const auto root_twin = twins_.find(root.id().value());
  if (stage == Stage::running && root_twin != twins_.end() && root_twin->second.home == Home::shared) return false;
  const cl_int code = memory.is_image() ? make_image(memory, known->second) : make_buffer(memory, known->second);
  check(code, fmt::format("{} of {} bytes", memory.is_image() ? "an image" : "a buffer", memory.size));
  return true;
}

BuildOrder Transplant::order_for(const Program& program, std::shared_ptr<const Recipe> recipe) const {
  BuildOrder order;
  order.program = program.id();
  order.context = program.context->id();
  order.program_devices = ids_of(program.devices);
  order.options = recipe->options;
  order.recipe = std::move(recipe);
  return order;
}

void Transplant::build_as(const Program& program, ObjectId id, const std::shared_ptr<const Recipe>& recipe,
                          const std::vector<DeviceBuild>& builds) {
  BuildOrder order = order_for(program, recipe);
  order.program = id;
  bool is_built = false;
  for (std::size_t next = 0; next < builds.size(); ++next) {
    if (builds[next].status == CL_BUILD_NONE) continue;
    is_built = true;
    order.devices.push_back(program.devices[next]->id());
  }
  if (recipe->compiled_only) order.step = BuildOrder::Step::compile;
  const bool needs_build = is_built && recipe->origin != ProgramOrigin::built_in;
  auto outcome = needs_build ? to_.build(order) : to_.check_program(order, nullptr);
  if (outcome.code != CL_SUCCESS && recipe->fallback) {  // a binary of another driver's
    order.recipe = recipe->fallback;
    order.options = recipe->fallback->options;
    if (order.recipe->compiled_only) order.step = BuildOrder::Step::compile;
    outcome = to_.build(order);
  }
  if (outcome.code != CL_SUCCESS) {
    std::string log = outcome.builds.empty() ? std::string{} : outcome.builds[0].log.substr(0, 2000);
    throw Refused{fmt::format("a program doesn't build at the destination: OpenCL error {}{}{}", outcome.code,
                              log.empty() ? "" : "\n", log)};
  }
}

// A program whose build failed has nothing below that anybody can use.
void Transplant::make_program(Program& program) {
  const auto [recipe, builds, number] = last_build_of(program);
  if (!has_failed(builds) && !is_nowhere_) build_as(program, program.id(), recipe, builds);
  build_numbers_[program.id().value()] = number;
}

void Transplant::make_kernel(Kernel& kernel) {
  if (is_nowhere_) return;
  Program& program = *kernel.program;
  const auto last = last_build_of(program);
  if (kernel.recipe == last.recipe) {
    check(to_.create_kernel(kernel.id(), program.id(), *kernel.facts), fmt::format("kernel {}", kernel.facts->name));
    return;
  }
  // Of a build before the last: only launches that are held back still need it.
  Ref<Program> before;
  {
    const Gate::Entry entry{kInternalCall};
    before = Ref<Program>::adopt(slab<Program>().create(*program.context));
  }
  build_as(program, before->id(), kernel.recipe, last.builds);
  check(to_.create_kernel(kernel.id(), before->id(), *kernel.facts), fmt::format("kernel {}", kernel.facts->name));
  to_.free(ObjectType::program, before->id());
  const Gate::Entry entry{kInternalCall};
  before = {};
}

void Transplant::free_gone(ObjectType type, const std::set<std::uint64_t>& there) {
  Made& made = made_[type];
  for (auto next = made.rbegin(); next != made.rend(); ++next) {
    if (there.contains(next->first)) continue;
    to_.free(type, next->second);
    if (type == ObjectType::memory) forget_twin(next->first);
  }
  std::erase_if(made, [&](const auto& entry) { return !there.contains(entry.first); });
}

void Transplant::forget_twin(std::uint64_t memory) {
  const auto twin = twins_.find(memory);
  if (twin == twins_.end()) return;
  if (twin->second.table) {
    Context& context = *twin->second.table->fingerprints->context;
    source_side(context)->free(*twin->second.table);
  }
  twins_.erase(twin);
}

template <typename T, typename Make>
void Transplant::follow_type(ObjectType type, const std::vector<Ref<T>>& objects, Make make) {
  Made& made = made_[type];
  for (const auto& object : objects) {
    const std::uint64_t key = object->id().value();
    if (!made.contains(key) && make(*object)) made.emplace(key, object->id());
  }
}

void Transplant::follow(const Inventory& all, Stage stage) {
  const auto always = [](auto make) {
    return [make](auto& object) {
      make(object);
      return true;
    };
  };
  // A program that was built again is made again; its kernels are new then.
  for (const auto& program : all.programs) {
    const auto built = build_numbers_.find(program->id().value());
    if (built != build_numbers_.end() && built->second != last_build_of(*program).number) make_program(*program);
  }
  follow_type(ObjectType::device, all.sub_devices, always([&](Device& device) { make_sub_device(device); }));
  follow_type(ObjectType::context, all.contexts, always([&](Context& context) { make_context(context); }));
  follow_type(ObjectType::sampler, all.samplers, always([&](Sampler& sampler) { make_sampler(sampler); }));
  follow_type(ObjectType::queue, all.queues, always([&](Queue& queue) { make_queue(queue); }));
  follow_type(ObjectType::program, all.programs, always([&](Program& program) { make_program(program); }));
  follow_type(ObjectType::kernel, all.kernels, always([&](Kernel& kernel) { make_kernel(kernel); }));
  follow_type(ObjectType::memory, all.memories, [&](Memory& memory) { return make_memory(memory, stage); });
  const auto free_gone_of = [&](ObjectType type, const auto& objects) {
    std::set<std::uint64_t> there;
    for (const auto& object : objects) there.insert(object->id().value());
    free_gone(type, there);
  };
  free_gone_of(ObjectType::kernel, all.kernels);
  free_gone_of(ObjectType::program, all.programs);
  free_gone_of(ObjectType::memory, all.memories);
  free_gone_of(ObjectType::sampler, all.samplers);
  free_gone_of(ObjectType::queue, all.queues);
  free_gone_of(ObjectType::context, all.contexts);
  free_gone_of(ObjectType::device, all.sub_devices);
}

// A queue at both sides, for copying alone.
Queue& Transplant::courier_of(const Context& context) {
  Ref<Queue>& courier = couriers_[&context];
  if (courier) return *courier;
  {
    const Gate::Entry entry{kInternalCall};
    courier = Ref<Queue>::adopt(slab<Queue>().create(const_cast<Context&>(context), *context.devices[0]));
  }
  for (Executor* executor : {&executor_of(context), &to_}) {
    const std::array<cl_queue_properties, 2> profiled{CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE};
    const cl_int code = executor->create_queue(courier->id(), context.id(), context.devices[0]->id(), profiled);
    if (code != CL_SUCCESS) throw Refused{fmt::format("no queue to copy with: OpenCL error {}", code)};
  }
  return *courier;
}

// What the device's clock says, by a command of our own; nothing if there is no device.
std::optional<cl_ulong> Transplant::clock_of(Executor& executor, const Context& context) {
  const Queue& courier = courier_of(context);
  const auto event = Ref<Event>::adopt(slab<Event>().create(const_cast<Context&>(context), nullptr, CL_COMMAND_MARKER));
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

memory::DeviceSide* Transplant::source_side(Context& context) {
  const auto [known, is_new] = source_sides_.try_emplace(&context);
  Executor& from = executor_of(context);
  if (is_new && compares(context, context.shares_host_memory()) && from.has_device())
    known->second = memory::DeviceSide::make(from, context, courier_of(context));
  return known->second.get();
}

memory::DeviceSide* Transplant::destination_side(Context& context) {
  const auto [known, is_new] = destination_sides_.try_emplace(&context);
  if (is_new && compares(context, shares_host_memory(context)) && to_.has_device())
    known->second = memory::DeviceSide::make(to_, context, courier_of(context));
  return known->second.get();
}

void Transplant::copy_one(Memory& memory, Twin& twin, Stage stage, const memory::OnCopied& on_copied) {
  Context& context = *memory.context;
  const memory::Route route{executor_of(context), to_, courier_of(context).id()};
  if (!memory.is_image() && !twin.table && !twin.pages) {
    if (memory::DeviceSide* const side = source_side(context)) twin.table = side->make_table(memory.size);
  }
  if (twin.table) {
    using Source = memory::DeviceSide::Source;
    source_side(context)->copy(to_, destination_side(context), memory.id(), memory.size, *twin.table,
                               stage == Stage::running ? Source::runs : Source::rests, on_copied);
    return;
  }
  if (!twin.pages)
    twin.pages =
        std::make_unique<memory::SentPages>(memory.is_image() ? memory::packed_size(*memory.image) : memory.size);
  if (memory.is_image()) {
    memory::copy_image(route, memory.id(), *memory.image, *twin.pages, on_copied);
  } else {
    memory::copy_buffer(route, memory.id(), memory.size, *twin.pages, on_copied);
  }
}

void Transplant::free_sides() noexcept {
  for (auto& [memory, twin] : twins_) {
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
  std::vector<std::pair<Memory*, Twin*>> dirty;
  std::set<Executor*> sources;
  for (const auto& memory : all.memories) {
    const auto twin = twins_.find(memory->id().value());
    if (twin == twins_.end() || !twin->second.is_copied) continue;
    if (!memory->dirty.exchange(false, std::memory_order_relaxed) && !twin->second.is_suspect) continue;
    dirty.emplace_back(memory.get(), &twin->second);
    sources.insert(&executor_of(*memory->context));
  }
  std::map<Executor*, WhenIdle> idle;
  if (stage == Stage::running) {
    for (Executor* const source : sources) idle.emplace(source, *source);
    for (const auto& [source, when] : idle) (void)when.wait(kWaitForCommands);
  }
  const auto count = [&](const memory::Copied& more) {
    sum += more;
    on_copied(more);
  };
  for (const auto& [memory, twin] : dirty) {
    Executor& from = executor_of(*memory->context);
    twin->is_suspect = stage == Stage::running && !idle.at(&from).is_done();
    try {
      copy_one(*memory, *twin, stage, count);
    } catch (...) {
      memory->touch();
      throw;
    }
  }
  for (const auto& [context, courier] : couriers_) {
    if (to_.finish(courier->id()) != CL_SUCCESS) throw Refused{"the destination failed while memory was written"};
  }
  return sum;
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
      (void)from.submit(unmap, placement);
    }
    if (twin.home == Home::shared) {
      if (memory.is_image()) {
        (void)to_.submit(command::MapImage{{memory.id()},
                                           mapping->flags,
                                           {mapping->origin, mapping->region},
                                           mapping->pointer,
                                           mapping->row_pitch,
                                           mapping->slice_pitch},
                         placement);
      } else {
        (void)to_.submit(command::MapBuffer{{memory.id()}, mapping->flags, mapping->range, mapping->pointer},
                         placement);
      }
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

std::set<Executor*> Transplant::take_over(const Inventory& all) {
  // Commands that the source has finished are finished for good.
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
  HoldBack::instance().session_moves(
      [&](Memory& memory) { return twins_.at(memory.root().id().value()).home == Home::shared; });
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
    if (!memory->parent && twin.home == Home::elsewhere) memory->host_memory = nullptr;
  }
  for (const auto& program : all.programs) {
    if (has_failed(program->builds)) program->created = false;
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
