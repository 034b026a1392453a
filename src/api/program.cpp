// Entry points: making programs, and asking about them.
#include <algorithm>

#include "api/answer.hpp"
#include "api/build.hpp"
#include "api/call.hpp"
#include "api/check.hpp"
#include "command/callbacks.hpp"
#include "objects/program_binary.hpp"

namespace grus::api {
namespace {

Ref<Program> make_program(Context& context, std::span<Device* const> devices, Recipe recipe) {
  auto program = Ref<Program>::adopt(slab<Program>().create(context));
  if (devices.empty()) {
    program->devices = context.devices;
  } else {
    for (Device* device : devices) program->devices.emplace_back(device);
  }
  program->builds.resize(program->devices.size());
  program->recipe = std::make_shared<const Recipe>(std::move(recipe));
  return program;
}

// To be called with the program's mutex held, or before anybody else has it.
BuildOrder order_as_made(const Program& program) {
  BuildOrder order = order_for(program);
  order.recipe = program.recipe;
  return order;
}

// Devices named for a new program: all of the context's.
Result<std::vector<Device*>> devices_named(const Context& context, cl_uint count, const cl_device_id* handles) {
  if (count == 0 || !handles) return Failure{CL_INVALID_VALUE};
  std::vector<Device*> devices;
  for (cl_uint next = 0; next < count; ++next) {
    devices.push_back(live<Device>(handles[next]));
    if (!devices.back() || !context.has(*devices.back())) return Failure{CL_INVALID_DEVICE};
  }
  return devices;
}

// Checks below the seam what can be checked before a build, and keeps the result there.
cl_int check_below(Program& program, std::vector<cl_int>* statuses) {
  const std::lock_guard lock{program.mutex};
  BuildOutcome outcome = executor_of(*program.context).check_program(order_as_made(program), statuses);
  const cl_int code = outcome.code;
  if (outcome.created) program.accept(std::move(outcome));
  return code;
}

}  // namespace

Result<cl_program> clCreateProgramWithSource(cl_context handle, cl_uint count, const char** strings,
                                             const std::size_t* lengths) {
  Context* context = live<Context>(handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  if (count == 0 || !strings) return Failure{CL_INVALID_VALUE};
  Recipe recipe;
  for (cl_uint next = 0; next < count; ++next) {
    if (!strings[next]) return Failure{CL_INVALID_VALUE};
    if (lengths && lengths[next] != 0) {
      recipe.source.append(strings[next], lengths[next]);
    } else {
      recipe.source.append(strings[next]);
    }
  }
  return reinterpret_cast<cl_program>(make_program(*context, {}, std::move(recipe)).hand_out());
}

Result<cl_program> clCreateProgramWithIL(cl_context handle, const void* il, std::size_t length) {
  Context* context = live<Context>(handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  if (!il || length == 0) return Failure{CL_INVALID_VALUE};
  Recipe recipe;
  recipe.origin = ProgramOrigin::il;
  recipe.il.assign(static_cast<const std::byte*>(il), static_cast<const std::byte*>(il) + length);
  auto program = make_program(*context, {}, std::move(recipe));
  if (const cl_int code = check_below(*program, nullptr); code != CL_SUCCESS) return Failure{code};
  return reinterpret_cast<cl_program>(program.hand_out());
}

Result<cl_program> clCreateProgramWithBuiltInKernels(cl_context handle, cl_uint count, const cl_device_id* handles,
                                                     const char* names) {
  Context* context = live<Context>(handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  if (!names) return Failure{CL_INVALID_VALUE};
  const auto devices = devices_named(*context, count, handles);
  if (!devices) return Failure{devices.error()};
  Recipe recipe;
  recipe.origin = ProgramOrigin::built_in;
  recipe.source = names;
  auto program = make_program(*context, *devices, std::move(recipe));
  if (const cl_int code = check_below(*program, nullptr); code != CL_SUCCESS) return Failure{code};
  // There is nothing to build.
  program->executable = true;
  program->kernel_names.clear();
  program->builds.assign(program->devices.size(), {CL_BUILD_SUCCESS, "", "", CL_PROGRAM_BINARY_TYPE_EXECUTABLE, 0});
  for (std::string_view left = names; !left.empty();) {
    const std::size_t end = std::min(left.find(';'), left.size());
    if (end != 0) program->kernel_names.emplace_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return reinterpret_cast<cl_program>(program.hand_out());
}

namespace {

// Whether a program can be made from this on another device: a driver's own binary can't.
bool can_be_built_again(const Recipe& recipe) {
  return recipe.origin != ProgramOrigin::binary &&
         std::all_of(recipe.inputs.begin(), recipe.inputs.end(),
                     [](const auto& input) { return can_be_built_again(*input); });
}

}  // namespace

Result<cl_program> clCreateProgramWithBinary(cl_context handle, cl_uint count, const cl_device_id* handles,
                                             const std::size_t* lengths, const unsigned char** binaries,
                                             cl_int* statuses_out) {
  Context* context = live<Context>(handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  const auto devices = devices_named(*context, count, handles);
  if (!devices) return Failure{devices.error()};
  if (!lengths || !binaries) return Failure{CL_INVALID_VALUE};
  for (cl_uint next = 0; next < count; ++next) {
    if (lengths[next] != 0 && binaries[next]) continue;
    if (statuses_out) statuses_out[next] = CL_INVALID_VALUE;
    return Failure{CL_INVALID_VALUE};
  }
  Executor& executor = executor_of(*context);
  Recipe recipe;
  recipe.origin = ProgramOrigin::binary;
  std::shared_ptr<const Recipe> origin;  // what Grus's own binaries say that the program was made of
  std::map<std::string, std::vector<ArgumentFacts>> arguments;
  bool vendor_fits = true;
  bool damaged = false;
  for (cl_uint next = 0; next < count; ++next) {
    const std::span bytes{reinterpret_cast<const std::byte*>(binaries[next]), lengths[next]};
    if (statuses_out) statuses_out[next] = CL_SUCCESS;
    if (!is_encoded(bytes)) {  // a vendor's own, from before Grus was there
      recipe.vendor_binaries.emplace_back(bytes.begin(), bytes.end());
      continue;
    }
    auto binary = decode(bytes);
    if (!binary) {
      damaged = true;
      if (statuses_out) statuses_out[next] = CL_INVALID_BINARY;
      continue;
    }
    if (binary->identity != executor.device_identity((*devices)[next]->id())) vendor_fits = false;
    recipe.vendor_binaries.push_back(std::move(binary->vendor_binary));
    origin = binary->recipe;
    arguments = std::move(binary->arguments);
  }
  if (damaged) return Failure{CL_INVALID_BINARY};
  if (origin && !can_be_built_again(*origin)) origin = nullptr;
  recipe.fallback = origin;
  auto program = make_program(*context, *devices, std::move(recipe));
  program->known_arguments = std::move(arguments);
  program->from_binary = true;
  std::vector<cl_int> statuses;
  cl_int code = vendor_fits ? check_below(*program, &statuses) : CL_INVALID_BINARY;
  if (code != CL_SUCCESS && origin) {  // another device, or another version of its driver: from source, then
    program->recipe = origin;
    code = origin->compiled_only ? compile_again(*program) : CL_SUCCESS;
  }
  if (statuses_out && !statuses.empty() && code != CL_SUCCESS)
    std::copy(statuses.begin(), statuses.end(), statuses_out);
  if (code != CL_SUCCESS) return Failure{code};
  return reinterpret_cast<cl_program>(program.hand_out());
}

cl_int clRetainProgram(cl_program handle) { return retain<Program>(handle, CL_INVALID_PROGRAM); }
cl_int clReleaseProgram(cl_program handle) { return release_handle<Program>(handle, CL_INVALID_PROGRAM); }

cl_int clSetProgramReleaseCallback(cl_program handle, void(CL_CALLBACK* notify)(cl_program, void*), void*) {
  Program* program = live<Program>(handle);
  if (!program) return CL_INVALID_PROGRAM;
  if (!notify) return CL_INVALID_VALUE;
  return CL_INVALID_OPERATION;  // only for programs with global destructors, which no device supports
}

cl_int clSetProgramSpecializationConstant(cl_program handle, cl_uint id, std::size_t size, const void* value) {
  Program* program = live<Program>(handle);
  if (!program) return CL_INVALID_PROGRAM;
  if (!value) return CL_INVALID_VALUE;
  const std::lock_guard lock{program->mutex};
  if (program->recipe->origin != ProgramOrigin::il) return CL_INVALID_OPERATION;
  Recipe recipe = *program->recipe;
  const auto* bytes = static_cast<const std::byte*>(value);
  recipe.specialization_constants[id] = Bytes(bytes, bytes + size);
  const auto before = std::exchange(program->recipe, std::make_shared<const Recipe>(std::move(recipe)));
  // The vendor knows which constants there are and how large.
  const BuildOutcome outcome = executor_of(*program->context).check_program(order_as_made(*program), nullptr);
  if (outcome.code != CL_SUCCESS) program->recipe = before;
  return outcome.code;
}

namespace {

// The binaries that the program sees, one per device; empty for devices that it wasn't built for.
Result<std::vector<Bytes>> binaries_of(Program& program) {
  const std::lock_guard lock{program.mutex};
  if (!program.binaries.empty()) return program.binaries;
  if (program.building) return Failure{CL_INVALID_PROGRAM_EXECUTABLE};
  Executor& executor = executor_of(*program.context);
  auto vendor = executor.program_binaries(program.id());
  if (!vendor) return vendor;
  vendor->resize(program.devices.size());
  ProgramBinary binary;
  binary.recipe = program.recipe->fallback ? program.recipe->fallback : program.recipe;
  for (const auto& name : program.kernel_names) {
    auto known = program.kernel_facts.find(name);
    if (known == program.kernel_facts.end()) {
      auto facts = executor.kernel_facts(program.id(), name);
      if (!facts) continue;
      known = program.kernel_facts.emplace(name, *facts).first;
    }
    binary.arguments[name] = known->second->arguments;
  }
  std::vector<Bytes> binaries(program.devices.size());
  for (std::size_t next = 0; next < binaries.size(); ++next) {
    if ((*vendor)[next].empty()) continue;
    binary.identity = executor.device_identity(program.devices[next]->id());
    binary.type = program.builds[next].binary_type;
    binary.vendor_binary = std::move((*vendor)[next]);
    binaries[next] = encode(binary);
  }
  program.binaries = binaries;
  return binaries;
}

cl_int answer_binaries(const Room& room, Program& program) {
  const std::size_t size = program.devices.size() * sizeof(unsigned char*);
  if (room.value) {
    if (room.size < size) return CL_INVALID_VALUE;
    const auto binaries = binaries_of(program);
    if (!binaries) return binaries.error();
    auto** const places = static_cast<unsigned char**>(room.value);
    for (std::size_t next = 0; next < binaries->size(); ++next) {
      const Bytes& binary = (*binaries)[next];
      if (places[next] && !binary.empty()) std::memcpy(places[next], binary.data(), binary.size());
    }
  }
  if (room.size_ret) *room.size_ret = size;
  return CL_SUCCESS;
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const auto& name : names) all += (all.empty() ? "" : ";") + name;
  return all;
}

}  // namespace

cl_int clGetProgramInfo(cl_program handle, cl_program_info query, std::size_t size, void* value,
                        std::size_t* size_ret) {
  Program* program = live<Program>(handle);
  if (!program) return CL_INVALID_PROGRAM;
  const Room room{size, value, size_ret};
  switch (query) {
    case CL_PROGRAM_REFERENCE_COUNT:
      return answer(room, cl_uint{program->program_references()});
    case CL_PROGRAM_CONTEXT:
      return answer(room, reinterpret_cast<cl_context>(program->context.get()));
    case CL_PROGRAM_NUM_DEVICES:
      return answer(room, static_cast<cl_uint>(program->devices.size()));
    case CL_PROGRAM_DEVICES: {
      std::vector<cl_device_id> devices;
      for (const auto& device : program->devices) devices.push_back(reinterpret_cast<cl_device_id>(device.get()));
      return answer(room, devices);
    }
    case CL_PROGRAM_BINARY_SIZES: {
      const auto binaries = binaries_of(*program);
      if (!binaries) return binaries.error();
      std::vector<std::size_t> sizes;
      for (const Bytes& binary : *binaries) sizes.push_back(binary.size());
      return answer(room, sizes);
    }
    case CL_PROGRAM_BINARIES:
      return answer_binaries(room, *program);
    default:
      break;
  }
  const std::lock_guard lock{program->mutex};
  switch (query) {
    case CL_PROGRAM_SOURCE:
      return answer(room, !program->from_binary && program->recipe->origin == ProgramOrigin::source
                              ? program->recipe->source
                              : std::string{});
    case CL_PROGRAM_IL:
      return answer(room, program->recipe->origin == ProgramOrigin::il ? program->recipe->il : Bytes{});
    case CL_PROGRAM_NUM_KERNELS:
      return program->executable ? answer(room, program->kernel_names.size()) : CL_INVALID_PROGRAM_EXECUTABLE;
    case CL_PROGRAM_KERNEL_NAMES:
      return program->executable ? answer(room, joined(program->kernel_names)) : CL_INVALID_PROGRAM_EXECUTABLE;
    case CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT:
    case CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT:
      return program->executable ? answer(room, cl_bool{CL_FALSE}) : CL_INVALID_PROGRAM_EXECUTABLE;
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clGetProgramBuildInfo(cl_program handle, cl_device_id device_handle, cl_program_build_info query,
                             std::size_t size, void* value, std::size_t* size_ret) {
  Program* program = live<Program>(handle);
  if (!program) return CL_INVALID_PROGRAM;
  const auto device = std::find_if(program->devices.begin(), program->devices.end(), [&](const auto& own) {
    return reinterpret_cast<cl_device_id>(own.get()) == device_handle;
  });
  if (device == program->devices.end()) return CL_INVALID_DEVICE;
  const std::lock_guard lock{program->mutex};
  const DeviceBuild& build = program->builds[static_cast<std::size_t>(device - program->devices.begin())];
  const Room room{size, value, size_ret};
  switch (query) {
    case CL_PROGRAM_BUILD_STATUS:
      return answer(room, program->building ? cl_build_status{CL_BUILD_IN_PROGRESS} : build.status);
    case CL_PROGRAM_BUILD_OPTIONS:
      return answer(room, build.options);
    case CL_PROGRAM_BUILD_LOG:
      return answer(room, build.log);
    case CL_PROGRAM_BINARY_TYPE:
      return answer(room, build.binary_type);
    case CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE:
      return answer(room, build.global_variables);
    default:
      return CL_INVALID_VALUE;
  }
}

}  // namespace grus::api
