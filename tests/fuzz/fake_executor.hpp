// An executor without a vendor. It believes nothing: what a session must have checked is checked again, and all memory
// that it is given is read or written, at once or as late as may be.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "command/executor.hpp"

namespace grus::fuzz {

inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "the session let through: %s\n", what);
  std::abort();
}

class FakeExecutor final : public Executor {
 public:
  static constexpr std::size_t kLargest = std::size_t{1} << 16;  // of an object
  static constexpr std::size_t kElement = 4;                     // of an image

  enum class Kind { own_memory, in_place };
  enum class Pace { at_once, when_asked };
  // Every so many calls one fails; 0: none does.
  FakeExecutor(Kind kind, Pace pace, unsigned fails_every) : kind_{kind}, pace_{pace}, fails_every_{fails_every} {}

  // What happens between the pieces of a launch that is sent in some.
  std::function<cl_int(const command::Launch&)> on_launch;

  std::vector<PlatformDescription> platforms() override { return std::vector<PlatformDescription>(1); }
  Result<cl_uint> device_count(std::uint32_t platform) override {
    expect(platform == 0, "a platform that isn't there");
    return 2U;
  }
  void name_device(std::uint32_t platform, cl_uint index, ObjectId id) override {
    expect(platform == 0 && index < 2, "a device that isn't there");
    add(ObjectType::device, id);
  }
  Result<Bytes> device_info(ObjectId device, cl_device_info query) override {
    need(ObjectType::device, device);
    if (query == CL_DEVICE_HOST_UNIFIED_MEMORY) return to_bytes(cl_bool{kind_ == Kind::in_place});
    if (query % 2 != 0) return Failure{CL_INVALID_VALUE};
    return Bytes(query % 3);
  }
  Result<cl_uint> count_sub_devices(ObjectId parent, const cl_device_partition_property* how) override {
    need(ObjectType::device, parent);
    cl_uint count = 0;
    while (*how++ != 0) ++count;
    return count;
  }
  cl_int create_sub_devices(ObjectId parent, const cl_device_partition_property* how,
                            std::span<const ObjectId> ids) override {
    (void)count_sub_devices(parent, how);
    if (fails() || ids.empty()) return CL_INVALID_VALUE;
    const std::set<std::uint64_t> different = values_of(ids);
    if (different.size() != ids.size()) return CL_INVALID_VALUE;
    for (const ObjectId id : ids) add(ObjectType::device, id);
    return CL_SUCCESS;
  }
  Result<std::array<cl_ulong, 2>> device_and_host_timer(ObjectId device) override {
    need(ObjectType::device, device);
    return std::array<cl_ulong, 2>{1, 2};
  }
  cl_int unload_compiler(std::uint32_t platform) override {
    expect(platform == 0, "a platform that isn't there");
    return CL_SUCCESS;
  }
  DriverDescription describe_driver(std::uint32_t) override { return {"file", "yes"}; }
  std::shared_ptr<HostMemory> host_memory_for(bool, std::size_t) override { return nullptr; }
  bool is_in_this_process() const override { return true; }
  bool works_in_place(ObjectId device) override {
    need(ObjectType::device, device);
    return kind_ == Kind::in_place;
  }

  cl_int create_context(ObjectId id, std::span<const ObjectId> devices, std::uint32_t,
                        std::span<const cl_context_properties>, ErrorNotice notice) override {
    need_all(ObjectType::device, devices);
    if (fails()) {
      notice("it failed", nullptr, 0);
      return CL_OUT_OF_HOST_MEMORY;
    }
    add(ObjectType::context, id);
    return CL_SUCCESS;
  }
  cl_int create_queue(ObjectId id, ObjectId context, ObjectId device, std::span<const cl_queue_properties>) override {
    need(ObjectType::context, context);
    need(ObjectType::device, device);
    return fails() ? CL_INVALID_VALUE : add(ObjectType::queue, id);
  }
  cl_int create_buffer(const NewBuffer& buffer) override {
    need(ObjectType::context, buffer.context);
    expect(buffer.properties.empty() || buffer.properties.back() == 0, "a list without an end");
    if (buffer.size == 0 || buffer.size > kLargest) return CL_INVALID_BUFFER_SIZE;
    if (buffer.host) touch(buffer.host, buffer.size);
    if (buffer.initial) read(buffer.initial, buffer.size);
    if (fails()) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    {
      const std::lock_guard lock{mutex_};
      homes_[buffer.id.value()] = {buffer.host_memory, buffer.size};
    }
    return add(ObjectType::memory, buffer.id);
  }
  cl_int create_sub_buffer(ObjectId id, ObjectId parent, cl_mem_flags, Range range) override {
    need(ObjectType::memory, parent);
    need_range(parent, range);
    if (range.size == 0 || fails()) return CL_INVALID_VALUE;
    {
      const std::lock_guard lock{mutex_};
      homes_[id.value()] = {homes_[parent.value()].memory, range.size};
    }
    return add(ObjectType::memory, id);
  }
  Result<ImageLayout> create_image(const NewImage& image) override {
    need(ObjectType::context, image.context);
    if (image.from) need(ObjectType::memory, image.from);
    expect(image.properties.empty() || image.properties.back() == 0, "a list without an end");
    const cl_image_desc& desc = image.desc;
    std::size_t size = kElement;
    for (const std::size_t extent : {desc.image_width, desc.image_height, desc.image_depth, desc.image_array_size}) {
      if (__builtin_mul_overflow(size, std::max<std::size_t>(extent, 1), &size)) return Failure{CL_INVALID_IMAGE_SIZE};
    }
    if (desc.image_width == 0 || size > kLargest) return Failure{CL_INVALID_IMAGE_SIZE};
    // Pitches count for memory of the program's.
    const std::size_t row = std::max(desc.image_row_pitch, desc.image_width * kElement);
    const std::size_t slice = std::max(desc.image_slice_pitch, row * std::max<std::size_t>(desc.image_height, 1));
    const std::size_t slices = std::max<std::size_t>({desc.image_depth, desc.image_array_size, 1});
    if (image.initial) read(image.initial, slice * slices);
    if (image.host) touch(image.host, slice * slices);
    if (fails()) return Failure{CL_MEM_OBJECT_ALLOCATION_FAILURE};
    {
      const std::lock_guard lock{mutex_};
      homes_[image.id.value()] = {nullptr, size};
    }
    add(ObjectType::memory, image.id);
    return ImageLayout{kElement, desc.image_width * kElement, 0, size};
  }
  cl_int create_sampler(const NewSampler& sampler) override {
    need(ObjectType::context, sampler.context);
    expect(sampler.properties.empty() || sampler.properties.back() == 0, "a list without an end");
    return fails() ? CL_INVALID_VALUE : add(ObjectType::sampler, sampler.id);
  }
  Result<Bytes> supported_formats(ObjectId context, cl_mem_flags, cl_mem_object_type) override {
    need(ObjectType::context, context);
    return Bytes(16);
  }
  void when_memory_is_gone(ObjectId memory, std::function<void()> call) override {
    need(ObjectType::memory, memory);
    call();
  }

  BuildOutcome check_program(const BuildOrder& order, std::vector<cl_int>* statuses) override {
    statuses->assign(order.program_devices.size(), CL_SUCCESS);
    return build(order);
  }
  BuildOutcome build(const BuildOrder& order) override {
    need(ObjectType::context, order.context);
    need_all(ObjectType::device, order.program_devices);
    need_all(ObjectType::device, order.devices);
    expect(order.recipe != nullptr, "a program of nothing");
    BuildOutcome outcome;
    if (fails()) {
      outcome.code = CL_BUILD_PROGRAM_FAILURE;
      return outcome;
    }
    outcome.created = true;
    outcome.builds.resize(order.program_devices.size());
    outcome.executable = order.step != BuildOrder::Step::compile;
    outcome.kernel_names = {"one", "two"};
    return outcome;
  }
  Result<std::vector<Bytes>> program_binaries(ObjectId) override { return std::vector<Bytes>{Bytes(3)}; }
  std::string device_identity(ObjectId device) override {
    need(ObjectType::device, device);
    return "fake";
  }
  Result<std::shared_ptr<KernelFacts>> kernel_facts(ObjectId, const std::string& name) override {
    if (name != "one") return Failure{CL_INVALID_KERNEL_NAME};
    auto facts = std::make_shared<KernelFacts>();
    facts->name = name;
    facts->arguments.resize(3);
    return facts;
  }
  cl_int create_kernel(ObjectId id, ObjectId, const KernelFacts& facts) override {
    return facts.name == "bad" || fails() ? CL_INVALID_KERNEL_NAME : add(ObjectType::kernel, id);
  }
  Result<Bytes> kernel_group_info(ObjectId kernel, ObjectId device, cl_kernel_work_group_info) override {
    need(ObjectType::kernel, kernel);
    need(ObjectType::device, device);
    return Bytes(8);
  }
  Result<Bytes> kernel_sub_group_info(ObjectId kernel, ObjectId device, cl_kernel_sub_group_info,
                                      std::span<const std::byte> input, std::size_t room) override {
    need(ObjectType::kernel, kernel);
    need(ObjectType::device, device);
    read(input.data(), input.size());
    return Bytes(room);
  }
  cl_int try_argument(ObjectId kernel, cl_uint, std::size_t size, const void* value) override {
    need(ObjectType::kernel, kernel);
    if (value) read(value, size);
    return CL_SUCCESS;
  }

  cl_int submit(const command::Launch& launch, const Placement& placement) override {
    need(ObjectType::kernel, launch.kernel);
    if (on_launch) {
      if (const cl_int code = on_launch(launch); code != CL_SUCCESS) return code;
    }
    launch.each_memory([&](ObjectId id) { need(ObjectType::memory, id); });
    for (const Argument& argument : launch.arguments) {
      if (argument.holds == Argument::Holds::value) read(argument.value.data(), argument.value.size());
      if (argument.holds == Argument::Holds::sampler) need(ObjectType::sampler, argument.object);
    }
    expect(launch.dimensions <= 3, "too many dimensions");
    for (const std::size_t* sizes : {launch.offset, launch.global, launch.local}) {
      if (sizes) read(sizes, launch.dimensions * sizeof *sizes);
    }
    return place(placement);
  }
  cl_int submit(const command::NativeKernel&, const Placement&) override {
    expect(false, "a native kernel");
    return CL_INVALID_OPERATION;
  }
  cl_int submit(const command::Read& command, const Placement& placement) override {
    return transfer(command, placement, [command] { touch(command.to, command.range.size); });
  }
  cl_int submit(const command::Write& command, const Placement& placement) override {
    return transfer(command, placement, [command] { read(command.from, command.range.size); });
  }
  cl_int submit(const command::ReadRectangle& command, const Placement& placement) override {
    return transfer(command, placement, [command] { touch(command.to, extent_of(command.rectangle)); });
  }
  cl_int submit(const command::WriteRectangle& command, const Placement& placement) override {
    return transfer(command, placement, [command] { read(command.from, extent_of(command.rectangle)); });
  }
  cl_int submit(const command::ReadImage& command, const Placement& placement) override {
    return transfer(command, placement, [command] { touch(command.to, extent_of(command)); });
  }
  cl_int submit(const command::WriteImage& command, const Placement& placement) override {
    return transfer(command, placement, [command] { read(command.from, extent_of(command)); });
  }
  cl_int submit(const command::Fill& command, const Placement& placement) override {
    return transfer(command, placement, [command] { read(command.pattern.bytes.data(), command.pattern.size); });
  }
  cl_int submit(const command::MapBuffer& command, const Placement& placement) override {
    return transfer(command, placement, [] {});
  }
  cl_int submit(const command::MapImage& command, const Placement& placement) override {
    return transfer(command, placement, [] {});
  }
  cl_int submit(const command::Unmap& command, const Placement& placement) override {
    return transfer(command, placement, [] {});
  }
  cl_int submit(const command::Copy& command, const Placement& placement) override {
    return transfer(command, placement, [] {});
  }
  cl_int submit(const command::CopyRectangle& command, const Placement& placement) override {
    return transfer(command, placement, [] {});
  }
  cl_int submit(const command::CopyImage& command, const Placement& placement) override {
    return transfer(command, placement, [] {});
  }
  cl_int submit(const command::CopyImageToBuffer& command, const Placement& placement) override {
    return transfer(command, placement, [] {});
  }
  cl_int submit(const command::CopyBufferToImage& command, const Placement& placement) override {
    return transfer(command, placement, [] {});
  }
  cl_int submit(const command::FillImage& command, const Placement& placement) override {
    return transfer(command, placement, [] {});
  }
  cl_int submit(const command::Migrate& command, const Placement& placement) override {
    return transfer(command, placement, [] {});
  }
  cl_int submit(const command::Marker&, const Placement& placement) override { return place(placement); }
  cl_int submit(const command::Barrier&, const Placement& placement) override { return place(placement); }

  cl_int flush(ObjectId queue) override {
    need(ObjectType::queue, queue);
    return CL_SUCCESS;
  }
  cl_int finish(ObjectId) override {
    catch_up();
    return fails() ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
  }
  cl_int wait(std::span<const ObjectId> events) override {
    expect(!events.empty(), "a wait for nothing");
    need_all(ObjectType::event, events);
    catch_up();
    return fails() ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS;
  }
  Result<cl_int> event_status(ObjectId event) override {
    need(ObjectType::event, event);
    return cl_int{CL_COMPLETE};
  }
  Result<cl_ulong> event_profile(ObjectId event, cl_profiling_info) override {
    need(ObjectType::event, event);
    return cl_ulong{1};
  }
  cl_int when_event(ObjectId event, cl_int, std::function<void(cl_int)> call) override {
    need(ObjectType::event, event);
    if (fails()) return CL_INVALID_VALUE;
    catch_up();
    call(fails() ? CL_OUT_OF_RESOURCES : CL_COMPLETE);
    return CL_SUCCESS;
  }
  void when_idle(Whose, std::function<void()> call) override {
    catch_up();
    call();
  }
  cl_int set_queue_property(ObjectId queue, cl_command_queue_properties, cl_bool,
                            cl_command_queue_properties* before) override {
    need(ObjectType::queue, queue);
    *before = 0;
    return CL_SUCCESS;
  }
  void free(ObjectType type, ObjectId id) noexcept override {
    const std::lock_guard lock{mutex_};
    const auto found = there_[static_cast<std::size_t>(type)].find(id.slot());
    const bool is_there = found != there_[static_cast<std::size_t>(type)].end() && found->second == id;
    expect(is_there || type == ObjectType::program, "the end of an object that isn't there");
    if (is_there) there_[static_cast<std::size_t>(type)].erase(found);
    if (type == ObjectType::memory) homes_.erase(id.value());
  }

 private:
  struct Home {
    std::shared_ptr<HostMemory> memory;
    std::size_t size = 0;
  };

  bool fails() { return fails_every_ != 0 && ++calls_ % fails_every_ == 0; }
  static std::set<std::uint64_t> values_of(std::span<const ObjectId> ids) {
    std::set<std::uint64_t> values;
    for (const ObjectId id : ids) values.insert(id.value());
    return values;
  }
  cl_int add(ObjectType type, ObjectId id) {
    const std::lock_guard lock{mutex_};
    expect(static_cast<bool>(id), "an object without an id");
    expect(there_[static_cast<std::size_t>(type)].emplace(id.slot(), id).second, "a slot that is taken");
    return CL_SUCCESS;
  }
  void need(ObjectType type, ObjectId id) {
    const std::lock_guard lock{mutex_};
    const auto found = there_[static_cast<std::size_t>(type)].find(id.slot());
    expect(found != there_[static_cast<std::size_t>(type)].end() && found->second == id, "an object that isn't there");
  }
  void need_range(ObjectId memory, const Range& range) {
    const std::lock_guard lock{mutex_};
    const std::size_t size = homes_[memory.value()].size;
    expect(range.size <= size && range.offset <= size - range.size, "a range beyond its object");
  }
  void need_all(ObjectType type, std::span<const ObjectId> ids) {
    for (const ObjectId id : ids) need(type, id);
  }
  cl_int place(
      const Placement& placement, std::function<void()> use = [] {}) {
    need(ObjectType::queue, placement.queue);
    need_all(ObjectType::event, placement.waits);
    if (fails()) return CL_OUT_OF_RESOURCES;
    {
      const std::lock_guard lock{late_mutex_};
      late_.push_back(std::move(use));
    }
    if (pace_ == Pace::at_once || placement.blocking == Blocking::yes) catch_up();
    return placement.event ? add(ObjectType::event, placement.event) : CL_SUCCESS;
  }
  template <typename Command, typename Use>
  cl_int transfer(const Command& command, const Placement& placement, Use use) {
    command.each_memory([&](ObjectId id) { need(ObjectType::memory, id); });
    if constexpr (requires { command.range; }) need_range(command.memory, command.range);
    if constexpr (std::is_same_v<Command, command::Copy>) {
      need_range(command.from, {command.from_offset, command.size});
      need_range(command.to, {command.to_offset, command.size});
    }
    return place(placement, std::move(use));
  }
  void catch_up() {
    const std::lock_guard lock{late_mutex_};
    for (const auto& use : late_) use();
    late_.clear();
  }
  static std::size_t extent_of(const command::Rectangle& r) {
    expect(r.host_origin == Triple{}, "a rectangle that isn't packed");
    return r.region[0] * r.region[1] * r.region[2];
  }
  template <typename Command>
  static std::size_t extent_of(const Command& command) {
    const Triple& region = command.where.region;
    expect(command.row_pitch == region[0] * kElement || command.row_pitch == 0, "an odd pitch");
    return region[0] * region[1] * region[2] * (command.row_pitch == 0 ? 0 : kElement);
  }
  static void touch(void* to, std::size_t size) {
    if (size != 0) std::memset(to, 1, size);
  }
  static void read(const void* from, std::size_t size) {
    const auto* const bytes = static_cast<const unsigned char*>(from);
    unsigned char all = 0;
    for (std::size_t index = 0; index < size; ++index) all ^= bytes[index];
    static std::atomic<unsigned char> seen;
    seen.store(all, std::memory_order_relaxed);
  }

  const Kind kind_;
  const Pace pace_;
  const unsigned fails_every_;
  std::atomic<unsigned> calls_{0};
  std::mutex mutex_;                            // guards what follows
  std::map<std::uint32_t, ObjectId> there_[8];  // by slot, as the local executor has them
  std::map<std::uint64_t, Home> homes_;         // of memory objects
  std::mutex late_mutex_;                       // guards what follows
  std::vector<std::function<void()>> late_;     // what commands do with memory
};

}  // namespace grus::fuzz
