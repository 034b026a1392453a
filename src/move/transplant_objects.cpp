// Transplant: the objects, made again at the destination, and kept up to date while the program goes on.
#include "base/log.hpp"
#include "command/gate.hpp"
#include "move/transplant.hpp"
#include "objects/image_format.hpp"

namespace grus::move {
namespace {

void check(cl_int code, const std::string& what) {
  if (code == CL_SUCCESS) return;
  const std::string why = fmt::format("the destination can't make {}: OpenCL error {}", what, code);
  if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE) throw NoRoom{why};
  throw Refused{why};
}

// What came of the last build, while others may be under way.
struct LastBuild {
  std::shared_ptr<const Recipe> recipe;
  std::vector<DeviceBuild> builds;
  std::uint64_t number = 0;
  bool has_failed = false;
};

LastBuild last_build_of(Program& program) {
  const std::lock_guard lock{program.mutex};
  return {program.recipe, program.builds, program.build_number, program.has_failed()};
}

std::vector<ObjectId> ids_of(const std::vector<Ref<Device>>& devices) {
  std::vector<ObjectId> ids;
  ids.reserve(devices.size());
  for (const auto& device : devices) ids.push_back(device->id());
  return ids;
}

}  // namespace

bool works_in_place(Executor& executor, const Context& context) {
  return executor.is_in_this_process() &&
         std::all_of(context.devices.begin(), context.devices.end(),
                     [&](const auto& device) { return executor.works_in_place(device->id()); });
}

bool Transplant::both_work_in_place(const Context& context) {
  const auto [known, is_new] = in_place_.emplace(&context, false);
  if (!is_new) return known->second;
  known->second = works_in_place(executor_of(context), context) && works_in_place(to_, context);
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
  if ((memory.host || memory.host_memory) && both_work_in_place(context)) {
    twin.home = Home::shared;
    twin.memory = memory.host_memory;
    return twin;
  }
  const std::size_t size = memory.is_image() ? memory::packed_size(*memory.image) : memory.size;
  twin.is_copied = true;
  const bool shares = shares_host_memory(context);
  const bool wants_host = shares || (memory.flags & CL_MEM_ALLOC_HOST_PTR) != 0;
  // An image that was laid out by the source's driver stays so for the program, which maps it as a copy.
  if (!wants_host || (memory.is_image() && !memory.host)) return twin;
  twin.memory = to_.host_memory_for(shares, size);
  // The program's own memory isn't for two devices at a time, and may be mapped and written at any moment. So the
  // object leaves it, and it only stands for the object while that is mapped.
  if (twin.memory && !memory.host_ptr) twin.home = Home::own;
  return twin;
}

std::byte* Transplant::home_of(const Memory& memory, const Twin& twin) {
  if (twin.memory) return twin.memory->data();
  return twin.home == Home::shared ? memory.host : nullptr;
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
  order.host = home_of(memory, twin);
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
    order.host = home_of(memory, twin);
    if (!order.host || twin.memory) {  // the pitches were those of what it was made from
      order.desc.image_row_pitch = 0;
      order.desc.image_slice_pitch = 0;
    }
    order.host_bytes =
        layout_of(order.desc, memory.image->element_size, order.desc.image_row_pitch, order.desc.image_slice_pitch)
            .size;
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

void Transplant::build_as(const Program& program, ObjectId id, const std::shared_ptr<const Recipe>& recipe,
                          const std::vector<DeviceBuild>& builds) {
  BuildOrder order = order_for(program);
  order.program = id;
  order.options = recipe->options;
  order.recipe = recipe;
  bool is_built = false;
  for (std::size_t next = 0; next < builds.size(); ++next) {
    if (builds[next].status == CL_BUILD_NONE) continue;
    is_built = true;
    order.devices.push_back(program.devices[next]->id());
  }
  if (recipe->compiled_only) order.step = BuildOrder::Step::compile;
  const bool needs_build = is_built && recipe->origin != ProgramOrigin::built_in;
  if (needs_build) {
    look_();
    ++builds_;
  }
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
  const LastBuild last = last_build_of(program);
  if (!last.has_failed && !is_nowhere_) build_as(program, program.id(), last.recipe, last.builds);
  build_numbers_[program.id().value()] = last.number;
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
  bridges_.erase(twin->second.bridge.get());
  twins_.erase(twin);
}

template <typename T, typename Make>
void Transplant::follow_type(ObjectType type, const std::vector<Ref<T>>& objects, Make make) {
  Made& made = made_[type];
  for (const auto& object : objects) {
    const std::uint64_t key = object->id().value();
    if (made.contains(key) || !make(*object)) continue;
    made.emplace(key, object->id());
    is_unsure_ = true;
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
  // A server need not say at once what it couldn't make.
  if (std::exchange(is_unsure_, false)) check(to_.untold_failure(), "all objects");
}

}  // namespace grus::move
