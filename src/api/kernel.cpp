// Entry points: kernels, their arguments and their launches.
#include <algorithm>
#include <limits>

#include "api/answer.hpp"
#include "api/check.hpp"
#include "api/entry_point.hpp"

namespace grus::api {
namespace {

// What is known about a kernel, asked for once per build and name. The caller has the program's mutex, so that no build
// takes its place meanwhile.
Result<std::shared_ptr<KernelFacts>> facts_of(Program& program, const std::string& name) {
  if (!program.executable || program.building) return Failure{CL_INVALID_PROGRAM_EXECUTABLE};
  if (const auto found = program.kernel_facts.find(name); found != program.kernel_facts.end()) return found->second;
  auto facts = executor_of(*program.context).kernel_facts(program.id(), name);
  if (!facts) return facts;
  if (const auto told = program.known_arguments.find(name);
      told != program.known_arguments.end() && told->second.size() == (*facts)->arguments.size()) {
    for (std::size_t index = 0; index < told->second.size(); ++index) {
      if (ArgumentFacts& argument = (*facts)->arguments[index]; !argument.known) argument = told->second[index];
    }
  }
  program.kernel_facts[name] = *facts;
  return facts;
}

std::uint64_t fact_key(const Device& device, cl_kernel_work_group_info query) {
  return device.id().value() << 16 | query;
}

const Result<Bytes>& group_fact(Kernel& kernel, const Device& device, cl_kernel_work_group_info query) {
  return kernel.facts->work_group.get(fact_key(device, query), [&] {
    return executor_of(*kernel.program->context).kernel_group_info(kernel.id(), device.id(), query);
  });
}

Result<Ref<Kernel>> make_kernel(Program& program, const std::string& name) {
  const std::lock_guard lock{program.mutex};
  const auto facts = facts_of(program, name);
  if (!facts) return Failure{facts.error()};
  auto kernel = Ref<Kernel>::adopt(slab<Kernel>().create(program, *facts));
  kernel->recipe = program.recipe;
  const cl_int code = executor_of(*program.context).create_kernel(kernel->id(), program.id(), **facts);
  if (code != CL_SUCCESS) return Failure{code};
  kernel->created = true;
  // Asked for now, because once a launch has set arguments the vendor counts those in local memory too.
  for (const auto& device : program.devices) (void)group_fact(*kernel, *device, CL_KERNEL_LOCAL_MEM_SIZE);
  return kernel;
}

bool may_access(const Memory& image, cl_kernel_arg_access_qualifier access) {
  if (access == CL_KERNEL_ARG_ACCESS_READ_ONLY) return !(image.flags & CL_MEM_WRITE_ONLY);
  return access != CL_KERNEL_ARG_ACCESS_WRITE_ONLY || !(image.flags & CL_MEM_READ_ONLY);
}

// An argument that the compiler described as an object, or that may be one: types that tell nothing are decided by the
// table of live objects.
cl_int set_object(Kernel& kernel, cl_uint index, ArgumentKind kind, std::size_t size, const void* value) {
  Argument& argument = kernel.arguments[index];
  const bool sampler = kind == ArgumentKind::sampler;
  if (size != sizeof(void*)) return CL_INVALID_ARG_SIZE;
  void* handle = nullptr;
  if (value) std::memcpy(&handle, value, sizeof handle);
  ObjectId id;
  if (sampler) {
    const Sampler* object = handle ? live<Sampler>(handle) : nullptr;
    if (!object) return value ? CL_INVALID_SAMPLER : CL_INVALID_ARG_VALUE;
    if (object->context.get() != kernel.program->context.get()) return CL_INVALID_CONTEXT;
    id = object->id();
  } else if (handle) {
    const Memory* object = live<Memory>(handle);
    if (!object) return CL_INVALID_MEM_OBJECT;
    if (object->is_image() != (kind == ArgumentKind::image) && kind != ArgumentKind::unknown) {
      return kind == ArgumentKind::image || object->type != CL_MEM_OBJECT_IMAGE1D_BUFFER ? CL_INVALID_MEM_OBJECT
                                                                                         : CL_INVALID_ARG_VALUE;
    }
    if (object->context.get() != kernel.program->context.get()) return CL_INVALID_CONTEXT;
    if (object->is_image() && !may_access(*object, kernel.facts->arguments[index].access)) return CL_INVALID_ARG_VALUE;
    id = object->id();
  } else if (kind == ArgumentKind::image) {
    return CL_INVALID_ARG_VALUE;
  }
  const auto holds = sampler ? Argument::Holds::sampler : Argument::Holds::memory;
  if (argument.holds == holds && argument.object == id) return CL_SUCCESS;
  if (argument.holds == Argument::Holds::nothing) --kernel.unset;
  argument.holds = holds;
  argument.object = id;
  argument.stamp = kernel.next_stamp++;
  return CL_SUCCESS;
}

std::size_t local_size_of(const Kernel& kernel) {
  std::size_t total = 0;
  for (const Argument& argument : kernel.arguments) {
    if (argument.holds == Argument::Holds::local && __builtin_add_overflow(total, argument.local_size, &total))
      return SIZE_MAX;
  }
  return total;
}

cl_int set_local(Kernel& kernel, cl_uint index, std::size_t size) {
  if (size == 0) return CL_INVALID_ARG_SIZE;
  Argument& argument = kernel.arguments[index];
  if (argument.holds == Argument::Holds::local && argument.local_size == size) return CL_SUCCESS;
  if (argument.holds == Argument::Holds::nothing) --kernel.unset;
  argument.holds = Argument::Holds::local;
  argument.object = {};
  argument.local_size = size;
  argument.stamp = kernel.next_stamp++;
  kernel.local_size = local_size_of(kernel);
  return CL_SUCCESS;
}

cl_int set_value(Kernel& kernel, cl_uint index, std::size_t size, const void* value) {
  Argument& argument = kernel.arguments[index];
  if (argument.holds == Argument::Holds::value && argument.value.equals(value, size)) return CL_SUCCESS;
  // Only the compiler knows the size of a structure; it is asked once per argument.
  auto& accepted = kernel.facts->accepted_sizes[index];
  if (accepted.load(std::memory_order_relaxed) != size) {
    const cl_int code = executor_of(*kernel.program->context).try_argument(kernel.id(), index, size, value);
    if (code != CL_SUCCESS) return code;
    accepted.store(size, std::memory_order_relaxed);
  }
  if (argument.holds == Argument::Holds::nothing) --kernel.unset;
  argument.holds = Argument::Holds::value;
  argument.object = {};
  argument.value.assign(value, size);
  argument.stamp = kernel.next_stamp++;
  return CL_SUCCESS;
}

[[gnu::noinline]] cl_int set_argument(Kernel& kernel, cl_uint index, std::size_t size, const void* value) {
  const ArgumentKind kind = kernel.arguments[index].kind;
  switch (kind) {
    case ArgumentKind::value:
      return value ? set_value(kernel, index, size, value) : CL_INVALID_ARG_VALUE;
    case ArgumentKind::buffer:
    case ArgumentKind::image:
    case ArgumentKind::sampler:
      return set_object(kernel, index, kind, size, value);
    case ArgumentKind::local:
      return value ? CL_INVALID_ARG_VALUE : set_local(kernel, index, size);
    case ArgumentKind::unknown:
      break;
  }
  if (!value) {
    // Local memory, or a null buffer: the vendor knows.
    const cl_int code = executor_of(*kernel.program->context).try_argument(kernel.id(), index, size, nullptr);
    return code == CL_SUCCESS ? set_local(kernel, index, size) : code;
  }
  if (size == sizeof(void*)) {
    void* object = nullptr;
    std::memcpy(&object, value, sizeof object);
    if (live<Memory>(object)) return set_object(kernel, index, kind, size, value);
    if (live<Sampler>(object)) return set_object(kernel, index, ArgumentKind::sampler, size, value);
  }
  return set_value(kernel, index, size, value);
}

// The commonest cases by far, in few instructions: a value of the size that it had before, which the vendor has
// accepted, and another buffer. False if it is none of them.
inline bool set_quickly(Kernel& kernel, Argument& argument, std::size_t size, const void* value) {
  if (!value) return false;
  if (argument.holds == Argument::Holds::value && argument.kind == ArgumentKind::value) {
    const auto done = argument.value.assign_quickly(value, size);
    if (done == ArgumentValue::Quick::changed) argument.stamp = kernel.next_stamp++;
    return done != ArgumentValue::Quick::no;
  }
  if (argument.holds != Argument::Holds::memory || argument.kind != ArgumentKind::buffer || size != sizeof(void*))
    return false;
  void* handle = nullptr;
  std::memcpy(&handle, value, sizeof handle);
  const Memory* buffer = live<Memory>(handle);
  if (!buffer || buffer->is_image() || buffer->context.get() != kernel.program->context.get()) return false;
  if (argument.object == buffer->id()) return true;
  argument.object = buffer->id();
  argument.stamp = kernel.next_stamp++;
  return true;
}

// OpenCL 3.0 §5.10, "clEnqueueNDRangeKernel". What depends on the kernel is the vendor's to say: some report smaller
// groups than they run (rusticl), and programs rely on what runs.
cl_int check_sizes(const Device& device, cl_uint dimensions, const std::size_t* offset, const std::size_t* global,
                   const std::size_t* local) {
  const DeviceLimits& limits = device.limits;
  if (dimensions == 0 || dimensions > limits.max_dimensions || dimensions > 3) return CL_INVALID_WORK_DIMENSION;
  if (!global) return limits.zero_sized_launches ? CL_SUCCESS : CL_INVALID_GLOBAL_WORK_SIZE;
  std::size_t group = 1;
  for (cl_uint d = 0; d < dimensions; ++d) {
    if (global[d] == 0 && !limits.zero_sized_launches) return CL_INVALID_GLOBAL_WORK_SIZE;
    if (offset && offset[d] > std::numeric_limits<std::size_t>::max() - global[d]) return CL_INVALID_GLOBAL_OFFSET;
    if (!local) continue;
    if (local[d] == 0) return CL_INVALID_WORK_GROUP_SIZE;
    if (local[d] > limits.max_items[d]) return CL_INVALID_WORK_ITEM_SIZE;
    if (!limits.non_uniform_groups && global[d] % local[d] != 0) return CL_INVALID_WORK_GROUP_SIZE;
    group *= local[d];
  }
  return local && group > limits.max_group_size ? CL_INVALID_WORK_GROUP_SIZE : CL_SUCCESS;
}

// What the arguments name must still be there: a kernel doesn't keep it alive. What is bound may be written.
bool touch_arguments(const Kernel& kernel) {
  for (const Argument& argument : kernel.arguments) {
    if (!argument.object) continue;
    if (argument.holds == Argument::Holds::memory) {
      Memory* memory = slab<Memory>().find(argument.object);
      if (!memory) return false;
      memory->touch();
    } else if (!slab<Sampler>().find(argument.object)) {
      return false;
    }
  }
  return true;
}

[[gnu::always_inline]] inline cl_int launch(cl_command_queue queue_handle, cl_kernel handle, cl_uint dimensions,
                                            const std::size_t* offset, const std::size_t* global,
                                            const std::size_t* local, cl_uint wait_count, const cl_event* wait_handles,
                                            cl_event* event_out, cl_command_type type) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Kernel* kernel = live<Kernel>(handle);
  if (!kernel) return CL_INVALID_KERNEL;
  if (kernel->program->context.get() != queue->context.get()) return CL_INVALID_CONTEXT;
  if (const cl_int code = check_sizes(*queue->device, dimensions, offset, global, local); code != CL_SUCCESS)
    return code;
  // Not all drivers check this. (An argument that was local and is not any more may still be counted.)
  const std::size_t local_memory = queue->device->limits.local_memory;
  if (kernel->local_size > local_memory && local_size_of(*kernel) > local_memory) return CL_OUT_OF_RESOURCES;
  if (kernel->unset != 0 || !touch_arguments(*kernel)) return CL_INVALID_KERNEL_ARGS;
  return enqueue(
      command::Launch{kernel->id(), kernel->arguments, kernel->next_stamp, dimensions, offset, global, local},
      {*queue, {wait_count, wait_handles}, event_out, type});
}

}  // namespace

Result<cl_kernel> clCreateKernel(cl_program handle, const char* name) {
  Program* program = live<Program>(handle);
  if (!program) return Failure{CL_INVALID_PROGRAM};
  if (!name) return Failure{CL_INVALID_VALUE};
  auto kernel = make_kernel(*program, name);
  if (!kernel) return Failure{kernel.error()};
  return reinterpret_cast<cl_kernel>(kernel->hand_out());
}

cl_int clCreateKernelsInProgram(cl_program handle, cl_uint entries, cl_kernel* kernels, cl_uint* count_out) {
  Program* program = live<Program>(handle);
  if (!program) return CL_INVALID_PROGRAM;
  std::vector<std::string> names;
  {
    const std::lock_guard lock{program->mutex};
    if (!program->executable) return CL_INVALID_PROGRAM_EXECUTABLE;
    names = program->kernel_names;
  }
  if (kernels && entries < names.size()) return CL_INVALID_VALUE;
  if (count_out) *count_out = static_cast<cl_uint>(names.size());
  if (!kernels) return CL_SUCCESS;
  std::vector<Ref<Kernel>> made;
  for (const auto& name : names) {
    auto kernel = make_kernel(*program, name);
    if (!kernel) return kernel.error();
    made.push_back(std::move(*kernel));
  }
  for (std::size_t next = 0; next < made.size(); ++next)
    kernels[next] = reinterpret_cast<cl_kernel>(made[next].hand_out());
  return CL_SUCCESS;
}

Result<cl_kernel> clCloneKernel(cl_kernel handle) {
  Kernel* source = live<Kernel>(handle);
  if (!source) return Failure{CL_INVALID_KERNEL};
  auto kernel = Ref<Kernel>::adopt(slab<Kernel>().create(*source->program, source->facts));
  kernel->recipe = source->recipe;
  const cl_int code =
      executor_of(*source->program->context).create_kernel(kernel->id(), source->program->id(), *source->facts);
  if (code != CL_SUCCESS) return Failure{code};
  kernel->created = true;
  std::copy(source->arguments.begin(), source->arguments.end(), kernel->arguments.begin());
  kernel->unset = source->unset;
  kernel->local_size = source->local_size;
  kernel->next_stamp = source->next_stamp;
  return reinterpret_cast<cl_kernel>(kernel.hand_out());
}

cl_int clRetainKernel(cl_kernel handle) { return retain<Kernel>(handle, CL_INVALID_KERNEL); }

cl_int clReleaseKernel(cl_kernel handle) {
  const Ref<Kernel> kernel{live<Kernel>(handle)};
  if (!kernel || !program_release(kernel.get())) return CL_INVALID_KERNEL;
  if (kernel->program_references() == 0) kernel->detach();
  return CL_SUCCESS;
}

cl_int clSetKernelArg(cl_kernel handle, cl_uint index, std::size_t size, const void* value) {
  Kernel* kernel = live<Kernel>(handle);
  if (!kernel) return CL_INVALID_KERNEL;
  if (index >= kernel->arguments.size()) return CL_INVALID_ARG_INDEX;
  return set_quickly(*kernel, kernel->arguments[index], size, value) ? CL_SUCCESS
                                                                     : set_argument(*kernel, index, size, value);
}

cl_int clGetKernelInfo(cl_kernel handle, cl_kernel_info query, std::size_t size, void* value, std::size_t* size_ret) {
  Kernel* kernel = live<Kernel>(handle);
  if (!kernel) return CL_INVALID_KERNEL;
  const Room room{size, value, size_ret};
  switch (query) {
    case CL_KERNEL_FUNCTION_NAME:
      return answer(room, kernel->facts->name);
    case CL_KERNEL_NUM_ARGS:
      return answer(room, static_cast<cl_uint>(kernel->arguments.size()));
    case CL_KERNEL_REFERENCE_COUNT:
      return answer(room, cl_uint{kernel->program_references()});
    case CL_KERNEL_CONTEXT:
      return answer(room, reinterpret_cast<cl_context>(kernel->program->context.get()));
    case CL_KERNEL_PROGRAM:
      return answer(room, reinterpret_cast<cl_program>(kernel->program.get()));
    case CL_KERNEL_ATTRIBUTES:
      return answer(room, kernel->facts->attributes);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clGetKernelArgInfo(cl_kernel handle, cl_uint index, cl_kernel_arg_info query, std::size_t size, void* value,
                          std::size_t* size_ret) {
  Kernel* kernel = live<Kernel>(handle);
  if (!kernel) return CL_INVALID_KERNEL;
  if (index >= kernel->arguments.size()) return CL_INVALID_ARG_INDEX;
  const ArgumentFacts& facts = kernel->facts->arguments[index];
  if (!facts.known) return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
  const Room room{size, value, size_ret};
  switch (query) {
    case CL_KERNEL_ARG_ADDRESS_QUALIFIER:
      return answer(room, facts.address);
    case CL_KERNEL_ARG_ACCESS_QUALIFIER:
      return answer(room, facts.access);
    case CL_KERNEL_ARG_TYPE_NAME:
      return answer(room, facts.type);
    case CL_KERNEL_ARG_TYPE_QUALIFIER:
      return answer(room, facts.qualifiers);
    case CL_KERNEL_ARG_NAME:
      return answer(room, facts.name);
    default:
      return CL_INVALID_VALUE;
  }
}

namespace {

// The device that a query about a kernel means: it may be left out if there is only one.
Result<Device*> device_meant(const Kernel& kernel, cl_device_id handle) {
  const auto& devices = kernel.program->devices;
  if (!handle) {
    if (devices.size() != 1) return Failure{CL_INVALID_DEVICE};
    return devices.front().get();
  }
  Device* device = live<Device>(handle);
  if (!device || std::none_of(devices.begin(), devices.end(), [&](const auto& own) { return own.get() == device; })) {
    return Failure{CL_INVALID_DEVICE};
  }
  return device;
}

}  // namespace

cl_int clGetKernelWorkGroupInfo(cl_kernel handle, cl_device_id device_handle, cl_kernel_work_group_info query,
                                std::size_t size, void* value, std::size_t* size_ret) {
  Kernel* kernel = live<Kernel>(handle);
  if (!kernel) return CL_INVALID_KERNEL;
  const auto device = device_meant(*kernel, device_handle);
  if (!device) return device.error();
  if (query > 0xFFFF) return CL_INVALID_VALUE;  // no query has such a name, and facts are kept by 16 bits of it
  const Room room{size, value, size_ret};
  const auto& fact = group_fact(*kernel, **device, query);
  if (query != CL_KERNEL_LOCAL_MEM_SIZE || !fact) return answer(room, fact);
  cl_ulong total = from_bytes<cl_ulong>(*fact);
  for (const Argument& argument : kernel->arguments) {
    if (argument.holds == Argument::Holds::local) total += argument.local_size;
  }
  return answer(room, total);
}

cl_int clGetKernelSubGroupInfo(cl_kernel handle, cl_device_id device_handle, cl_kernel_sub_group_info query,
                               std::size_t input_size, const void* input, std::size_t size, void* value,
                               std::size_t* size_ret) {
  Kernel* kernel = live<Kernel>(handle);
  if (!kernel) return CL_INVALID_KERNEL;
  const auto device = device_meant(*kernel, device_handle);
  if (!device) return device.error();
  if ((*device)->limits.version_major * 10 + (*device)->limits.version_minor < 21) return CL_INVALID_OPERATION;
  // Nothing that is asked or answered is longer than one size per dimension.
  constexpr std::size_t kLongest = 3 * sizeof(std::size_t);
  if (input_size > kLongest || (input_size != 0 && !input)) return CL_INVALID_VALUE;
  const std::size_t room = value ? std::min(size, kLongest) : 0;
  return answer(Room{size, value, size_ret},
                executor_of(*kernel->program->context)
                    .kernel_sub_group_info(kernel->id(), (*device)->id(), query,
                                           {static_cast<const std::byte*>(input), input_size}, room));
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const std::size_t* offset,
                              const std::size_t* global, const std::size_t* local, cl_uint wait_count,
                              const cl_event* wait_handles, cl_event* event_out) {
  return launch(queue, kernel, dimensions, offset, global, local, wait_count, wait_handles, event_out,
                CL_COMMAND_NDRANGE_KERNEL);
}

cl_int clEnqueueTask(cl_command_queue queue, cl_kernel kernel, cl_uint wait_count, const cl_event* wait_handles,
                     cl_event* event_out) {
  const std::size_t one = 1;
  return launch(queue, kernel, 1, nullptr, &one, &one, wait_count, wait_handles, event_out, CL_COMMAND_TASK);
}

}  // namespace grus::api

namespace grus {

template struct EntryPoint<Call::clSetKernelArg, &api::clSetKernelArg, decltype(cl_icd_dispatch::clSetKernelArg)>;
template struct EntryPoint<Call::clEnqueueNDRangeKernel, &api::clEnqueueNDRangeKernel,
                           decltype(cl_icd_dispatch::clEnqueueNDRangeKernel)>;

}  // namespace grus
