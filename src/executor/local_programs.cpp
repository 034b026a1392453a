// LocalExecutor: programs and kernels.
#include <algorithm>
#include <optional>

#include "base/log.hpp"
#include "executor/local_place.hpp"
#include "executor/query.hpp"

namespace grus {
namespace {

constexpr std::string_view kArgumentInfo = "-cl-kernel-arg-info";

// The compiler is told to keep what arguments are, invisibly to the program.
std::string with_argument_info(const std::string& options) {
  if (options.find(kArgumentInfo) != std::string::npos) return options;
  return options.empty() ? std::string{kArgumentInfo} : fmt::format("{} {}", options, kArgumentInfo);
}

template <typename T>
T program_build_info(cl_program program, cl_device_id device, cl_program_build_info query, T otherwise) {
  T value = otherwise;
  if (functions(program).clGetProgramBuildInfo(program, device, query, sizeof value, &value, nullptr) != CL_SUCCESS)
    return otherwise;
  return value;
}

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start < names.size();) {
    const std::size_t end = std::min(names.find(';', start), names.size());
    if (end > start) parts.push_back(names.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

std::vector<std::string> kernel_names_of(cl_program program) {
  const auto& call = functions(program);
  const auto names =
      ask([&](auto... rest) { return call.clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, rest...); });
  return names ? split(text_from_bytes(*names)) : std::vector<std::string>{};
}

ArgumentFacts argument_facts(cl_kernel kernel, cl_uint index) {
  ArgumentFacts facts;
  const auto& call = functions(kernel);
  const auto get = [&](cl_kernel_arg_info query, auto& value) {
    return call.clGetKernelArgInfo(kernel, index, query, sizeof value, &value, nullptr) == CL_SUCCESS;
  };
  const auto text = [&](cl_kernel_arg_info query) {
    const auto bytes = ask([&](auto... rest) { return call.clGetKernelArgInfo(kernel, index, query, rest...); });
    return bytes ? text_from_bytes(*bytes) : std::string{};
  };
  facts.known =
      get(CL_KERNEL_ARG_ADDRESS_QUALIFIER, facts.address) && get(CL_KERNEL_ARG_ACCESS_QUALIFIER, facts.access);
  get(CL_KERNEL_ARG_TYPE_QUALIFIER, facts.qualifiers);
  facts.type = text(CL_KERNEL_ARG_TYPE_NAME);
  facts.name = text(CL_KERNEL_ARG_NAME);
  facts.kind = ArgumentFacts::kind_of(facts);
  return facts;
}

}  // namespace

Result<cl_program> LocalExecutor::make_program(const BuildOrder& order, std::vector<cl_int>* statuses) {
  const VendorContext& context = context_of(order.context);
  const auto& call = functions(context.handle);
  const Recipe& recipe = *order.recipe;
  cl_int code = CL_SUCCESS;
  cl_program program = nullptr;
  switch (recipe.origin) {
    case ProgramOrigin::source: {
      const char* source = recipe.source.c_str();
      const std::size_t length = recipe.source.size();
      program = call.clCreateProgramWithSource(context.handle, 1, &source, &length, &code);
      break;
    }
    case ProgramOrigin::il:
      if (context.version < 210 || !call.clCreateProgramWithIL) return Failure{CL_INVALID_OPERATION};
      program = call.clCreateProgramWithIL(context.handle, recipe.il.data(), recipe.il.size(), &code);
      for (const auto& [id, value] : recipe.specialization_constants) {
        if (!program) break;
        code = context.version < 220 ? CL_INVALID_OPERATION
                                     : call.clSetProgramSpecializationConstant(program, id, value.size(), value.data());
        if (code == CL_SUCCESS) continue;
        call.clReleaseProgram(program);
        return Failure{code};
      }
      break;
    case ProgramOrigin::binary: {
      const auto devices = handles_of(order.program_devices);
      std::vector<const unsigned char*> binaries;
      std::vector<std::size_t> sizes;
      for (const Bytes& binary : recipe.vendor_binaries) {
        binaries.push_back(reinterpret_cast<const unsigned char*>(binary.data()));
        sizes.push_back(binary.size());
      }
      std::vector<cl_int> found(devices.size(), CL_SUCCESS);
      program = call.clCreateProgramWithBinary(context.handle, static_cast<cl_uint>(devices.size()), devices.data(),
                                               sizes.data(), binaries.data(), found.data(), &code);
      if (statuses) *statuses = found;
      break;
    }
    case ProgramOrigin::built_in: {
      const auto devices = handles_of(order.program_devices);
      program = call.clCreateProgramWithBuiltInKernels(context.handle, static_cast<cl_uint>(devices.size()),
                                                       devices.data(), recipe.source.c_str(), &code);
      break;
    }
    case ProgramOrigin::linked:
      return link_again(order);
  }
  if (!program) return Failure{code};
  return program;
}

// A program that was linked, made from scratch: its inputs are compiled from what they were made of, and linked.
Result<cl_program> LocalExecutor::link_again(const BuildOrder& order) {
  const VendorContext& context = context_of(order.context);
  const auto& call = functions(context.handle);
  const auto devices = handles_of(order.program_devices);
  std::vector<cl_program> inputs;
  cl_int code = CL_SUCCESS;
  for (const auto& recipe : order.recipe->inputs) {
    BuildOrder part = order;
    part.recipe = recipe;
    part.options = recipe->options;
    const auto input = make_program(part, nullptr);
    if (!input) {
      code = input.error();
      break;
    }
    inputs.push_back(*input);
    if (recipe->compiled_only) code = compile(part, *input, devices);
    if (code != CL_SUCCESS) break;
  }
  cl_program program = nullptr;
  if (code == CL_SUCCESS) {
    program = call.clLinkProgram(context.handle, static_cast<cl_uint>(devices.size()), devices.data(),
                                 order.recipe->options.c_str(), static_cast<cl_uint>(inputs.size()), inputs.data(),
                                 nullptr, nullptr, &code);
  }
  for (cl_program input : inputs) call.clReleaseProgram(input);
  if (!program) return Failure{code};
  return program;
}

BuildOutcome LocalExecutor::check_program(const BuildOrder& order, std::vector<cl_int>* statuses) {
  BuildOutcome outcome;
  const auto program = make_program(order, statuses);
  outcome.code = program.error();
  if (!program) return outcome;
  if (programs_[order.program]) {  // what was built before stays until the next build
    functions(*program).clReleaseProgram(*program);
  } else {
    replace_program(order, *program, outcome);
  }
  return outcome;
}

// Kernels of the build before keep their own reference to its program.
void LocalExecutor::replace_program(const BuildOrder& order, cl_program program, BuildOutcome& outcome) {
  describe_builds(order, program, handles_of(order.program_devices), outcome);
  if (outcome.executable) outcome.kernel_names = kernel_names_of(program);
  if (cl_program before = programs_[order.program]) functions(before).clReleaseProgram(before);
  programs_.set(order.program, program);
  if (!turns_.empty() && order.recipe) {
    Recipe built = *order.recipe;
    built.options += ' ' + order.options;
    const std::lock_guard lock{splits_mutex_};
    splits_[order.program.value()] = splits_of(built);
  }
  outcome.created = true;
}

cl_int LocalExecutor::compile(const BuildOrder& order, cl_program program, std::span<const cl_device_id> devices) {
  const VendorContext& context = context_of(order.context);
  const auto& call = functions(context.handle);
  std::vector<cl_program> headers;
  std::vector<const char*> names;
  cl_int code = CL_SUCCESS;
  for (const auto& [name, recipe] : order.recipe->headers) {
    const char* source = recipe->source.c_str();
    const std::size_t length = recipe->source.size();
    cl_program header = call.clCreateProgramWithSource(context.handle, 1, &source, &length, &code);
    if (!header) break;
    headers.push_back(header);
    names.push_back(name.c_str());
  }
  if (code == CL_SUCCESS) {
    code = call.clCompileProgram(program, static_cast<cl_uint>(devices.size()),
                                 devices.empty() ? nullptr : devices.data(), with_argument_info(order.options).c_str(),
                                 static_cast<cl_uint>(headers.size()), headers.empty() ? nullptr : headers.data(),
                                 names.empty() ? nullptr : names.data(), nullptr, nullptr);
  }
  for (cl_program header : headers) call.clReleaseProgram(header);
  return code;
}

Result<cl_program> LocalExecutor::link(const BuildOrder& order, cl_int* code) {
  const VendorContext& context = context_of(order.context);
  std::vector<cl_program> inputs;
  for (const ObjectId input : order.inputs) inputs.push_back(programs_[input]);
  const auto devices = handles_of(order.devices);
  cl_program program = functions(context.handle)
                           .clLinkProgram(context.handle, static_cast<cl_uint>(devices.size()),
                                          devices.empty() ? nullptr : devices.data(), order.options.c_str(),
                                          static_cast<cl_uint>(inputs.size()), inputs.data(), nullptr, nullptr, code);
  if (!program) return Failure{*code};
  return program;
}

void LocalExecutor::describe_builds(const BuildOrder& order, cl_program program, std::span<const cl_device_id> devices,
                                    BuildOutcome& outcome) {
  outcome.builds.resize(devices.size());
  for (std::size_t next = 0; next < devices.size(); ++next) {
    DeviceBuild& build = outcome.builds[next];
    cl_device_id device = devices[next];
    build.status = program_build_info<cl_build_status>(program, device, CL_PROGRAM_BUILD_STATUS, CL_BUILD_NONE);
    build.binary_type = program_build_info<cl_program_binary_type>(program, device, CL_PROGRAM_BINARY_TYPE,
                                                                   CL_PROGRAM_BINARY_TYPE_NONE);
    build.global_variables =
        program_build_info<std::size_t>(program, device, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, 0);
    build.options = order.options;
    const auto log = ask([&](auto... rest) {
      return functions(program).clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, rest...);
    });
    if (log) build.log = text_from_bytes(*log);
    if (build.binary_type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE && build.status == CL_BUILD_SUCCESS)
      outcome.executable = true;
  }
}

BuildOutcome LocalExecutor::build(const BuildOrder& order) {
  BuildOutcome outcome;
  const auto devices = handles_of(order.devices);
  cl_program program = nullptr;
  if (order.step == BuildOrder::Step::link) {
    const auto linked = link(order, &outcome.code);
    if (!linked) return outcome;
    program = *linked;
  } else {
    const auto made = make_program(order, nullptr);
    if (!made) {
      outcome.code = made.error();
      return outcome;
    }
    program = *made;
    if (order.step == BuildOrder::Step::compile) {
      outcome.code = compile(order, program, devices);
    } else if (order.recipe->origin != ProgramOrigin::linked) {
      const bool compiles = order.recipe->origin == ProgramOrigin::source || order.recipe->origin == ProgramOrigin::il;
      const std::string options = compiles ? with_argument_info(order.options) : order.options;
      outcome.code = functions(program).clBuildProgram(program, static_cast<cl_uint>(devices.size()),
                                                       devices.empty() ? nullptr : devices.data(), options.c_str(),
                                                       nullptr, nullptr);
    }
  }
  replace_program(order, program, outcome);
  return outcome;
}

Result<std::vector<Bytes>> LocalExecutor::program_binaries(ObjectId id) {
  cl_program program = programs_[id];
  if (!program) return std::vector<Bytes>{};
  const auto& call = functions(program);
  const auto sizes =
      ask([&](auto... rest) { return call.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, rest...); });
  if (!sizes) return Failure{sizes.error()};
  std::vector<Bytes> binaries(sizes->size() / sizeof(std::size_t));
  std::vector<std::byte*> places;
  for (std::size_t next = 0; next < binaries.size(); ++next) {
    std::size_t size = 0;
    std::memcpy(&size, sizes->data() + next * sizeof size, sizeof size);
    binaries[next].resize(size);
    places.push_back(size != 0 ? binaries[next].data() : nullptr);
  }
  const cl_int code =
      call.clGetProgramInfo(program, CL_PROGRAM_BINARIES, places.size() * sizeof(void*), places.data(), nullptr);
  if (code != CL_SUCCESS) return Failure{code};
  return binaries;
}

std::string LocalExecutor::device_identity(ObjectId device) {
  std::string identity;
  for (const cl_device_info query : {CL_DEVICE_VENDOR, CL_DEVICE_NAME, CL_DEVICE_VERSION, CL_DRIVER_VERSION}) {
    const auto bytes = device_info(device, query);
    identity += (bytes ? text_from_bytes(*bytes) : std::string{}) + '\n';
  }
  return identity;
}

Result<std::shared_ptr<KernelFacts>> LocalExecutor::kernel_facts(ObjectId id, const std::string& name) {
  cl_program program = programs_[id];
  if (!program) return Failure{CL_INVALID_PROGRAM_EXECUTABLE};
  cl_int code = CL_SUCCESS;
  cl_kernel kernel = functions(program).clCreateKernel(program, name.c_str(), &code);
  if (!kernel) return Failure{code};
  auto facts = std::make_shared<KernelFacts>();
  const auto& call = functions(kernel);
  facts->name = name;
  const auto attributes =
      ask([&](auto... rest) { return call.clGetKernelInfo(kernel, CL_KERNEL_ATTRIBUTES, rest...); });
  if (attributes) facts->attributes = text_from_bytes(*attributes);
  cl_uint count = 0;
  call.clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr);
  for (cl_uint index = 0; index < count; ++index) facts->arguments.push_back(argument_facts(kernel, index));
  facts->accepted_sizes = std::make_unique<std::atomic<std::size_t>[]>(count);
  call.clReleaseKernel(kernel);
  return facts;
}

cl_int LocalExecutor::create_kernel(ObjectId id, ObjectId program_id, const KernelFacts& facts) {
  cl_program program = programs_[program_id];
  if (!program) return CL_INVALID_PROGRAM_EXECUTABLE;
  cl_int code = CL_SUCCESS;
  cl_kernel handle = functions(program).clCreateKernel(program, facts.name.c_str(), &code);
  if (!handle) return code;
  auto kernel = std::make_unique<VendorKernel>();
  kernel->handle = handle;
  kernel->kind = Work::kind_of_kernel(program_id.value(), facts.name);
  kernel->stamps.resize(facts.arguments.size());
  if (!turns_.empty()) {
    const std::lock_guard lock{splits_mutex_};
    const auto found = splits_.find(program_id.value());
    if (found != splits_.end()) kernel->splits = found->second;
  }
  kernels_.set(id, kernel.release());
  return CL_SUCCESS;
}

Result<Bytes> LocalExecutor::kernel_group_info(ObjectId id, ObjectId device_id, cl_kernel_work_group_info query) {
  cl_kernel kernel = kernels_[id]->handle;
  cl_device_id device = device_id ? devices_[device_id] : nullptr;
  return ask([&](auto... rest) { return functions(kernel).clGetKernelWorkGroupInfo(kernel, device, query, rest...); });
}

Result<Bytes> LocalExecutor::kernel_sub_group_info(ObjectId id, ObjectId device_id, cl_kernel_sub_group_info query,
                                                   std::span<const std::byte> input, std::size_t room) {
  cl_kernel kernel = kernels_[id]->handle;
  cl_device_id device = device_id ? devices_[device_id] : nullptr;
  auto function = functions(kernel).clGetKernelSubGroupInfo;
  if (!function) function = functions(kernel).clGetKernelSubGroupInfoKHR;
  if (!function) return Failure{CL_INVALID_OPERATION};
  // Its answers depend on how much room there is for them, so the program's size goes along.
  Bytes bytes(room);
  std::size_t size = 0;
  const cl_int code = function(kernel, device, query, input.size(), input.empty() ? nullptr : input.data(), room,
                               room != 0 ? bytes.data() : nullptr, &size);
  if (code != CL_SUCCESS) return Failure{code};
  bytes.resize(size);
  return bytes;
}

cl_int LocalExecutor::try_argument(ObjectId id, cl_uint index, std::size_t size, const void* value) {
  VendorKernel& kernel = *kernels_[id];
  const std::lock_guard lock{kernel.lock};
  kernel.stamps[index] = 0;
  kernel.stamp = 0;
  return functions(kernel.handle).clSetKernelArg(kernel.handle, index, size, value);
}

cl_int LocalExecutor::set_argument(cl_kernel kernel, cl_uint index, const Argument& argument) {
  const auto function = functions(kernel).clSetKernelArg;
  switch (argument.holds) {
    case Argument::Holds::memory: {
      cl_mem memory = argument.object ? memories_[argument.object].handle : nullptr;
      return function(kernel, index, sizeof memory, &memory);
    }
    case Argument::Holds::sampler: {
      cl_sampler sampler = samplers_[argument.object];
      return function(kernel, index, sizeof sampler, &sampler);
    }
    case Argument::Holds::local:
      return function(kernel, index, argument.local_size, nullptr);
    case Argument::Holds::value:
      return function(kernel, index, argument.value.size(), argument.value.data());
    case Argument::Holds::nothing:
      return CL_INVALID_KERNEL_ARGS;
  }
  return CL_INVALID_KERNEL_ARGS;
}

cl_int LocalExecutor::set_arguments(VendorKernel& kernel, const command::Launch& launch) {
  kernel.stamp = 0;  // until all of them are set
  for (std::size_t index = 0; index < launch.arguments.size(); ++index) {
    const Argument& argument = launch.arguments[index];
    if (kernel.stamps[index] == argument.stamp) continue;
    const cl_int code = set_argument(kernel.handle, static_cast<cl_uint>(index), argument);
    if (code != CL_SUCCESS) return code;
    kernel.stamps[index] = argument.stamp;
  }
  kernel.stamp = launch.stamp;
  return CL_SUCCESS;
}

namespace {

std::uint64_t work_items(const command::Launch& launch) {
  std::uint64_t all = 1;
  for (cl_uint dimension = 0; launch.global && dimension < launch.dimensions; ++dimension)
    all *= launch.global[dimension];
  return all;
}

std::uint64_t values_of(const command::Launch& launch) {
  std::uint64_t all = 0;
  for (const Argument& argument : launch.arguments) {
    const std::string_view value{static_cast<const char*>(argument.value.data()), argument.value.size()};
    if (argument.holds == Argument::Holds::value) all = all * 31 + std::hash<std::string_view>{}(value);
  }
  return all;
}

}  // namespace

Work LocalExecutor::whole_of(const VendorKernel& kernel, const command::Launch& launch) {
  return {kernel.kind, work_items(launch), values_of(launch)};
}

std::size_t LocalExecutor::first_parts(const Work& whole, const VendorQueue& queue, const Cutter& cutter) {
  const std::size_t wanted = queue.turn->first_parts(whole, cutter.left());
  return queue.turn->widened(whole, wanted, cutter.filling(wanted, queue.width), cutter.left());
}

bool LocalExecutor::goes_in_pieces(const command::Launch& launch, ObjectId id) {
  const VendorQueue& queue = *queues_[id];
  const VendorKernel& kernel = *kernels_[launch.kernel];
  if (!queue.turn || !queue.in_order || kernel.splits == Splits::never) return false;
  const Cutter cutter{launch, kernel.splits};
  return first_parts(whole_of(kernel, launch), queue, cutter) < cutter.left();
}

// The device can be given back between any two of them. Only where commands of the queue come one after the other.
cl_int LocalExecutor::launch_in_pieces(VendorKernel& kernel, const command::Launch& launch, const Placement& placement,
                                       const Work& whole, Cutter cutter, std::size_t parts) {
  VendorQueue& to = *queues_[placement.queue];
  const std::size_t all = cutter.left();
  std::vector<cl_event> waits;
  for (const ObjectId wait : placement.waits) waits.push_back(events_[wait].last);
  VendorEvent event;
  cl_int code = CL_SUCCESS;
  Work sent{.kind = whole.kind, .amount = 0, .values = whole.values, .is_piece = true};
  std::size_t pieces = 0;
  while (cutter.left() != 0 && code == CL_SUCCESS) {
    const bool is_first = cutter.left() == all;
    if (!is_first) {
      code = wait_for_room(*to.turn);
      if (code != CL_SUCCESS) break;
      to.turn->note_whole(whole, sent, static_cast<double>(all) / static_cast<double>(parts));
      const std::size_t wanted = to.turn->next_parts(sent, parts);
      parts = std::min(to.turn->widened(whole, wanted, cutter.filling(wanted, to.width), all), cutter.left());
    }
    const Piece piece = cutter.take(parts);
    const bool is_last = cutter.left() == 0;
    ++pieces;
    sent.amount = piece.items;
    const Turn::Pass pass{to.turn, to.handle, sent, is_last ? placement.event.value() : 0};
    const std::lock_guard lock{kernel.lock};
    if (kernel.stamp != launch.stamp) code = set_arguments(kernel, launch);
    if (code != CL_SUCCESS) break;
    cl_event* const out = !placement.event ? nullptr : is_last ? &event.last : is_first ? &event.first : nullptr;
    code = functions(to.handle).clEnqueueNDRangeKernel(
        to.handle, kernel.handle, launch.dimensions, piece.offset.data(), piece.global.data(), launch.local,
        is_first ? static_cast<cl_uint>(waits.size()) : 0, is_first && !waits.empty() ? waits.data() : nullptr, out);
    to.busy.store(true, std::memory_order_relaxed);
    if (!is_last) functions(to.handle).clFlush(to.handle);
  }
  log::debug("split", "{} work-items in {} pieces", whole.amount, pieces);
  if (code == CL_SUCCESS && placement.event) {
    events_.set(placement.event, event);
  } else if (event.first) {
    functions(event.first).clReleaseEvent(event.first);
  }
  return code;
}

cl_int LocalExecutor::submit(const command::Launch& launch, const Placement& placement) {
  VendorKernel& kernel = *kernels_[launch.kernel];
  std::optional<Turn::Pass> pass;
  if (!turns_.empty()) {
    const VendorQueue& to = *queues_[placement.queue];
    const Work whole = whole_of(kernel, launch);
    if (to.turn && to.in_order && kernel.splits != Splits::never) {
      const Cutter cutter{launch, kernel.splits};
      const std::size_t parts = first_parts(whole, to, cutter);
      if (parts < cutter.left()) return launch_in_pieces(kernel, launch, placement, whole, cutter, parts);
    }
    pass.emplace(to.turn, to.handle, whole, to.in_order ? placement.event.value() : 0);
  }
  const std::lock_guard lock{kernel.lock};
  if (kernel.stamp != launch.stamp) {
    if (const cl_int code = set_arguments(kernel, launch); code != CL_SUCCESS) return code;
  }
  return place(placement, [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueNDRangeKernel(queue, kernel.handle, launch.dimensions, launch.offset,
                                                   launch.global, launch.local, rest...);
  });
}

}  // namespace grus
