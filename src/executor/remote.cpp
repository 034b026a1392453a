// RemoteExecutor: devices, objects and programs.
#include "executor/remote.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/log.hpp"
#include "command/callbacks.hpp"

namespace grus {

using channel::Kind;

namespace {

std::vector<cl_device_partition_property> list_of(const cl_device_partition_property* how) {
  std::vector<cl_device_partition_property> list;
  while (*how != 0) list.push_back(*how++);
  return list;
}

// The bytes of OpenCL's own types, by name: "float4", "uint". 0 for all others.
std::size_t size_of_type(std::string_view name) {
  struct Scalar {
    std::string_view name;
    std::size_t size;
  };
  static constexpr std::array<Scalar, 11> kScalars{{{"char", 1},
                                                    {"uchar", 1},
                                                    {"short", 2},
                                                    {"ushort", 2},
                                                    {"int", 4},
                                                    {"uint", 4},
                                                    {"long", 8},
                                                    {"ulong", 8},
                                                    {"float", 4},
                                                    {"double", 8},
                                                    {"half", 2}}};
  for (const Scalar& scalar : kScalars) {
    if (!name.starts_with(scalar.name)) continue;
    const std::string_view width = name.substr(scalar.name.size());
    if (width.empty()) return scalar.size;
    if (width == "2") return 2 * scalar.size;
    if (width == "3" || width == "4") return 4 * scalar.size;
    if (width == "8") return 8 * scalar.size;
    if (width == "16") return 16 * scalar.size;
  }
  return 0;
}

}  // namespace

template <typename T, typename... Values>
Result<T> RemoteExecutor::ask(Kind kind, const Values&... values) {
  const auto body = connection_->ask(kind, values...);
  if (!body) return Failure{kLost};
  return wire::Reader{*body}.take_result<T>();
}

template <typename... Values>
cl_int RemoteExecutor::ask_code(Kind kind, const Values&... values) {
  const auto body = connection_->ask(kind, values...);
  return body ? wire::Reader{*body}.take<cl_int>() : kLost;
}

RemoteExecutor::RemoteExecutor(channel::Opened channel, const std::string& server, channel::Security security)
    : server_{server},
      security_{security},
      connection_{std::make_unique<Connection>(std::move(channel), server)},
      arena_{connection_->memory() ? std::make_shared<Arena>(connection_->memory()) : nullptr} {
  make_slots();
  has_slots_ = !free_slots_.empty();
  connection_->on_notice = [this](wire::Reader& reader) {
    const auto context = reader.take<ObjectId>();
    const auto text = reader.take<std::string>();
    const std::lock_guard lock{mutex_};
    if (const auto found = notices_.find(context.value()); found != notices_.end() && found->second)
      found->second(text.c_str(), nullptr, 0);
  };
  const bool packs = channel::Packer::from_environment() != channel::Packer::Use::off && !connection_->memory();
  const auto answer = connection_->ask(Kind::hello, std::string{GRUS_VERSION}, packs);
  if (!answer) throw channel::Lost{fmt::format("{}: it closed the connection", server)};
  if (packs) connection_->pack();
  wire::Reader reader{*answer};
  reader(credit_);
  for (auto left = reader.take<std::size_t>(); left != 0; --left) {
    RemotePlatform& platform = platforms_.emplace_back();
    reader(platform.description, platform.driver);
    for (auto devices = reader.take<std::size_t>(); devices != 0; --devices) {
      auto device = std::make_shared<RemoteDevice>();
      reader(device->in_place);
      for (auto count = reader.take<std::size_t>(); count != 0; --count) {
        const auto query = reader.take<cl_device_info>();
        device->facts.emplace(query, reader.take_result<Bytes>());
      }
      platform.devices.push_back(std::move(device));
    }
  }
}

RemoteExecutor::~RemoteExecutor() {
  {
    const std::lock_guard lock{life_->mutex};
    life_->is_over = true;
  }
  connection_.reset();  // first: answers that come note things in the rest
}

std::vector<PlatformDescription> RemoteExecutor::platforms() {
  std::vector<PlatformDescription> descriptions;
  for (const auto& platform : platforms_) descriptions.push_back(platform.description);
  return descriptions;
}

Result<cl_uint> RemoteExecutor::device_count(std::uint32_t platform) {
  return static_cast<cl_uint>(platforms_[platform].devices.size());
}

void RemoteExecutor::name_device(std::uint32_t platform, cl_uint index, ObjectId id) {
  connection_->tell_later(Kind::name_device, platform, index, id);
  const std::lock_guard lock{mutex_};
  devices_[id.value()] = platforms_[platform].devices[index];
}

Result<Bytes> RemoteExecutor::device_info(ObjectId device, cl_device_info query) {
  {
    const std::lock_guard lock{mutex_};
    if (const auto known = devices_.find(device.value()); known != devices_.end()) {
      const Facts& facts = known->second->facts;
      if (const auto fact = facts.find(query); fact != facts.end()) return fact->second;
    }
  }
  return ask<Bytes>(Kind::device_info, device, query);
}

// A server whose address space is limited has no arena, and a guest's is full soon.
std::shared_ptr<HostMemory> RemoteExecutor::host_memory_for(bool /*device_shares_it*/, std::size_t size) try {
  return arena_ && !connection_->memory()->arena().empty() ? arena_->take(size) : nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}

// With the mutex.
bool RemoteExecutor::works_in_place(ObjectId device) {
  const auto known = devices_.find(device.value());
  return known != devices_.end() && known->second->in_place;
}

Result<cl_uint> RemoteExecutor::count_sub_devices(ObjectId parent, const cl_device_partition_property* how) {
  return ask<cl_uint>(Kind::count_sub_devices, parent, list_of(how));
}

cl_int RemoteExecutor::create_sub_devices(ObjectId parent, const cl_device_partition_property* how,
                                          std::span<const ObjectId> ids) {
  return ask_code(Kind::create_sub_devices, parent, list_of(how), ids);
}

Result<std::array<cl_ulong, 2>> RemoteExecutor::device_and_host_timer(ObjectId device) {
  return ask<std::array<cl_ulong, 2>>(Kind::timer, device);
}

cl_int RemoteExecutor::unload_compiler(std::uint32_t platform) { return ask_code(Kind::unload_compiler, platform); }

DriverDescription RemoteExecutor::describe_driver(std::uint32_t platform) { return platforms_[platform].driver; }

cl_int RemoteExecutor::create_context(ObjectId id, std::span<const ObjectId> devices, std::uint32_t platform,
                                      std::span<const cl_context_properties> properties, ErrorNotice notice) {
  {
    const std::lock_guard lock{mutex_};
    notices_[id.value()] = std::move(notice);
    contexts_in_place_[id.value()] =
        std::all_of(devices.begin(), devices.end(), [&](ObjectId device) { return works_in_place(device); });
  }
  const cl_int code = ask_code(Kind::create_context, id, devices, platform, properties);
  if (code != CL_SUCCESS) {
    const std::lock_guard lock{mutex_};
    notices_.erase(id.value());
    contexts_in_place_.erase(id.value());
  }
  return code;
}

cl_int RemoteExecutor::create_queue(ObjectId id, ObjectId context, ObjectId device,
                                    std::span<const cl_queue_properties> properties) {
  const cl_int code = ask_code(Kind::create_queue, id, context, device, properties);
  if (code != CL_SUCCESS) return code;
  const auto queue = std::make_shared<RemoteQueue>();
  for (std::size_t next = 0; next + 1 < properties.size(); next += 2) {
    queue->is_own = queue->is_own || properties[next] == kOwnQueue;
    if (properties[next] != CL_QUEUE_PROPERTIES) continue;
    queue->in_order = !(properties[next + 1] & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    queue->is_profiled = (properties[next + 1] & CL_QUEUE_PROFILING_ENABLE) != 0;
  }
  queues_.set(id, queue.get());
  const std::lock_guard lock{mutex_};
  all_queues_[id.value()] = queue;
  return CL_SUCCESS;
}

// An object that lives in shared memory is told by its place there: whatever it holds is there already. 0 for others.
std::uint64_t RemoteExecutor::place_of(const void* host, std::size_t size,
                                       const std::shared_ptr<HostMemory>& home) const {
  return home && arena_ && arena_->has(host, size) ? arena_->place_of(host) : 0;
}

// With the mutex.
RemoteExecutor::RemoteMemory RemoteExecutor::living_in(const std::shared_ptr<HostMemory>& home, ObjectId context) {
  return {.host = home->data(), .in_place = contexts_in_place_[context.value()], .home = home};
}

// Memory of the program's own stays here: what it holds goes along once, and maps and unmaps copy from then on.
cl_int RemoteExecutor::create_buffer(const NewBuffer& buffer) {
  if (connection_->is_lost()) return kLost;
  const std::uint64_t place = place_of(buffer.host, buffer.size, buffer.host_memory);
  const void* const contents = place != 0 ? nullptr : buffer.host ? buffer.host : buffer.initial;
  const auto block = HostBlock::of(contents, contents ? buffer.size : 0);
  RemoteMemory memory;
  bool asks = false;
  {
    const std::lock_guard lock{mutex_};
    if (buffer.is_region && place == 0) {
      regions_[buffer.id.value()] = buffer.host_memory;
      return CL_SUCCESS;
    }
    if (place != 0) memory = living_in(buffer.host_memory, buffer.context);
    asks = buffer.size > credit_;
    if (!asks) memory.credit = buffer.size;
    credit_ -= memory.credit;
  }
  cl_int code = CL_SUCCESS;
  if (asks) {
    const auto answer = connection_->ask_with(block, Kind::create_buffer, buffer, place);
    code = answer ? wire::Reader{*answer}.take<cl_int>() : kLost;
  } else if (contents) {
    connection_->tell_with(block, Kind::create_buffer, buffer, place);
  } else {
    memory.told = connection_->tell_later(Kind::create_buffer, buffer, place);
  }
  if (code == CL_SUCCESS) memories_.set(buffer.id, std::move(memory));
  return code;
}

cl_int RemoteExecutor::create_sub_buffer(ObjectId id, ObjectId parent, cl_mem_flags flags, Range range) {
  connection_->tell_later(Kind::create_sub_buffer, id, parent, flags, range);
  if (const RemoteMemory& whole = memories_[parent]; whole.host)
    memories_.set(id, {.host = whole.host + range.offset, .in_place = whole.in_place});
  return connection_->is_lost() ? kLost : CL_SUCCESS;
}

Result<ImageLayout> RemoteExecutor::create_image(const NewImage& image) {
  const std::uint64_t place = place_of(image.host, image.host_bytes, image.host_memory);
  const void* const contents = place != 0 ? nullptr : image.host ? image.host : image.initial;
  const auto answer =
      connection_->ask_with(HostBlock::of(contents, contents ? image.host_bytes : 0), Kind::create_image, image, place);
  if (!answer) return Failure{kLost};
  auto layout = wire::Reader{*answer}.take_result<ImageLayout>();
  if (!layout) return layout;
  if (place != 0) {
    const std::lock_guard lock{mutex_};
    memories_.set(image.id, living_in(image.host_memory, image.context));
  }
  if (image.host) {
    layout->row_pitch =
        image.desc.image_row_pitch ? image.desc.image_row_pitch : image.desc.image_width * layout->element_size;
    const bool rows_are_slices = image.desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    if (image.desc.image_slice_pitch != 0) {
      layout->slice_pitch = image.desc.image_slice_pitch;
    } else if (layout->slice_pitch != 0) {
      layout->slice_pitch = layout->row_pitch * (rows_are_slices ? 1 : image.desc.image_height);
    }
  }
  if (image.from && memories_[image.from].host) {
    const RemoteMemory& from = memories_[image.from];
    memories_.set(image.id, {.host = from.host, .in_place = from.in_place});
  }
  const std::lock_guard lock{mutex_};
  images_[image.id.value()] = {image.desc.image_type, layout->element_size, layout->row_pitch, layout->slice_pitch};
  return layout;
}

cl_int RemoteExecutor::untold_failure() { return ask_code(Kind::untold_failure); }

cl_int RemoteExecutor::create_sampler(const NewSampler& sampler) { return ask_code(Kind::create_sampler, sampler); }

Result<Bytes> RemoteExecutor::supported_formats(ObjectId context, cl_mem_flags flags, cl_mem_object_type type) {
  return ask<Bytes>(Kind::supported_formats, context, flags, type);
}

// If the server is lost, objects are gone when they are freed.
void RemoteExecutor::when_memory_is_gone(ObjectId memory, std::function<void()> call) {
  const auto watched = std::make_shared<std::function<void()>>(std::move(call));
  {
    const std::lock_guard lock{mutex_};
    watched_.emplace(memory.value(), watched);
  }
  const auto is_gone = [this, watched](wire::Reader* reader) {
    if (!reader) return;
    callbacks::post([this, watched] {
      (*watched)();
      const std::lock_guard lock{mutex_};
      std::erase_if(watched_, [&](const auto& entry) { return entry.second == watched; });
    });
  };
  connection_->ask_later({}, is_gone, Kind::watch_memory, memory);
}

// What an object lived in can be used again when the worker has finished all that may use it.
void RemoteExecutor::keep_until_idle(std::shared_ptr<HostMemory> home) {
  const bool is_idle =
      std::all_of(all_queues_.begin(), all_queues_.end(), [](const auto& entry) { return entry.second->is_idle(); });
  if (is_idle) return;
  left_homes_.push_back(std::move(home));
  if (!waits_for_idle_) ask_for_idle();
}

void RemoteExecutor::ask_for_idle() {
  waits_for_idle_ = true;
  auto homes = std::make_shared<std::vector<std::shared_ptr<HostMemory>>>(std::move(left_homes_));
  left_homes_.clear();
  const auto is_idle = [this, homes = std::move(homes)](wire::Reader*) mutable {
    callbacks::post([this, life = life_, homes = std::move(homes)]() mutable {
      homes.reset();
      const std::lock_guard alive{life->mutex};
      if (life->is_over) return;
      const std::lock_guard lock{mutex_};
      waits_for_idle_ = false;
      if (!left_homes_.empty()) ask_for_idle();
    });
  };
  connection_->ask_later({}, is_idle, Kind::when_idle, Whose::all);
}

// With the mutex. False if the server never knew it.
bool RemoteExecutor::forget_memory(ObjectId id) {
  if (const auto region = regions_.find(id.value()); region != regions_.end()) {
    connection_->with_lock([&] {  // reads into it may be on their way
      after_reads({}, {0, next_read_ - 1}, [memory = std::move(region->second)] {});
    });
    regions_.erase(region);
    return false;
  }
  RemoteMemory memory = memories_.take(id);
  credit_ += memory.credit;
  const bool is_known = memory.told == 0 || !connection_->take_back(memory.told);
  if (memory.home && is_known) keep_until_idle(std::move(memory.home));
  images_.erase(id.value());
  std::erase_if(mapped_, [&](const auto& entry) { return entry.second.memory == id; });
  if (connection_->is_lost()) {
    const auto [first, last] = watched_.equal_range(id.value());
    for (auto next = first; next != last; ++next) callbacks::post([watched = next->second] { (*watched)(); });
    watched_.erase(first, last);
  }
  return is_known;
}

void RemoteExecutor::free(ObjectType type, ObjectId id) noexcept {
  try {
    if (type == ObjectType::event) {
      connection_->with_lock([&] { events_.erase(id.value()); });
    } else if (type == ObjectType::kernel) {
      delete kernels_.take(id);
    } else {
      if (type == ObjectType::queue) {
        connection_->with_lock([&] { reads_.erase(id.value()); });
        (void)queues_.take(id);
      }
      const std::lock_guard lock{mutex_};
      if (type == ObjectType::queue) all_queues_.erase(id.value());
      if (type == ObjectType::context) {
        notices_.erase(id.value());
        contexts_in_place_.erase(id.value());
      }
      if (type == ObjectType::program) programs_.erase(id.value());
      if (type == ObjectType::device) devices_.erase(id.value());
      if (type == ObjectType::memory && !forget_memory(id)) return;
    }
    connection_->tell_later(Kind::free, type, id);
  } catch (const std::exception& error) {
    log::error("free", "an object stays at the server: {}", error.what());
  }
}

// A build's answer tells all that kernels will be asked about.
BuildOutcome RemoteExecutor::take_outcome(const BuildOrder& order, const std::optional<Bytes>& answer,
                                          std::vector<cl_int>* statuses) {
  BuildOutcome outcome;
  if (!answer) {
    outcome.code = kLost;
    return outcome;
  }
  wire::Reader reader{*answer};
  const auto told = reader.take<std::vector<cl_int>>();
  if (statuses) *statuses = told;
  reader(outcome);
  std::map<std::string, std::shared_ptr<BuiltKernel>> kernels;
  for (auto left = reader.take<std::size_t>(); left != 0; --left) {
    auto kernel = std::make_shared<BuiltKernel>();
    kernel->facts = std::make_shared<KernelFacts>();
    reader(*kernel->facts);
    kernel->facts->accepted_sizes = std::make_unique<std::atomic<std::size_t>[]>(kernel->facts->arguments.size());
    for (auto count = reader.take<std::size_t>(); count != 0; --count) {
      const auto device = reader.take<std::uint64_t>();
      const auto query = reader.take<cl_kernel_work_group_info>();
      kernel->group_info.emplace(std::pair{device, query}, reader.take_result<Bytes>());
    }
    kernels.emplace(kernel->facts->name, std::move(kernel));
  }
  const std::lock_guard lock{mutex_};
  programs_[order.program.value()] = std::move(kernels);
  return outcome;
}

BuildOutcome RemoteExecutor::check_program(const BuildOrder& order, std::vector<cl_int>* statuses) {
  return take_outcome(order, connection_->ask(Kind::check_program, order), statuses);
}

BuildOutcome RemoteExecutor::build(const BuildOrder& order) {
  return take_outcome(order, connection_->ask(Kind::build, order), nullptr);
}

Result<std::vector<Bytes>> RemoteExecutor::program_binaries(ObjectId program) {
  return ask<std::vector<Bytes>>(Kind::program_binaries, program);
}

std::string RemoteExecutor::device_identity(ObjectId device) {
  const auto identity = ask<std::string>(Kind::device_identity, device);
  return identity ? *identity : std::string{};
}

Result<std::shared_ptr<KernelFacts>> RemoteExecutor::kernel_facts(ObjectId program, const std::string& name) {
  {
    const std::lock_guard lock{mutex_};
    const auto& kernels = programs_[program.value()];
    if (const auto kernel = kernels.find(name); kernel != kernels.end()) return kernel->second->facts;
  }
  // Not one of those that the build told of, so only the driver knows what is wrong.
  return Failure{ask_code(Kind::kernel_facts, program, name)};
}

cl_int RemoteExecutor::create_kernel(ObjectId id, ObjectId program, const KernelFacts& facts) {
  auto kernel = std::make_unique<RemoteKernel>();
  kernel->stamps.resize(facts.arguments.size());
  {
    const std::lock_guard lock{mutex_};
    kernel->built = programs_[program.value()][facts.name];
  }
  if (kernel->built) {
    for (const auto& [asked, answer] : kernel->built->group_info) {
      if (asked.second == CL_KERNEL_COMPILE_WORK_GROUP_SIZE && answer)
        kernel->required_group = from_bytes<Triple>(*answer);
    }
  }
  kernels_.set(id, kernel.release());
  connection_->tell_later(Kind::create_kernel, id, program, facts.name, facts.arguments.size());
  return connection_->is_lost() ? kLost : CL_SUCCESS;
}

Result<Bytes> RemoteExecutor::kernel_group_info(ObjectId id, ObjectId device, cl_kernel_work_group_info query) {
  const auto& built = kernels_[id]->built;
  if (built) {
    const auto known = built->group_info.find({device.value(), query});
    if (known != built->group_info.end()) return known->second;
  }
  return ask<Bytes>(Kind::kernel_group_info, id, device, query);
}

Result<Bytes> RemoteExecutor::kernel_sub_group_info(ObjectId kernel, ObjectId device, cl_kernel_sub_group_info query,
                                                    std::span<const std::byte> input, std::size_t room) {
  return ask<Bytes>(Kind::kernel_sub_group_info, kernel, device, query, input, room);
}

cl_int RemoteExecutor::try_argument(ObjectId id, cl_uint index, std::size_t size, const void* value) {
  RemoteKernel& kernel = *kernels_[id];
  if (value && kernel.built) {
    const ArgumentFacts& argument = kernel.built->facts->arguments[index];
    if (const std::size_t known = argument.known ? size_of_type(argument.type) : 0; known != 0)
      return size == known ? CL_SUCCESS : CL_INVALID_ARG_SIZE;
  }
  const std::lock_guard lock{kernel.lock};
  kernel.stamps[index] = 0;
  kernel.stamp = 0;
  return ask_code(Kind::try_argument, id, index, size, value != nullptr);  // only the size can be wrong
}

}  // namespace grus
