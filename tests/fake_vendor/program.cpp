// Programs and kernels. Nothing is compiled: kernels are found in the source by their heads, and only one of them does
// anything when it runs (command.cpp).
#include <algorithm>
#include <sstream>

#include "answer.hpp"
#include "objects.hpp"

namespace fake {
namespace {

// "global int* data": the address space, the type and the name.
ArgumentFacts argument_from(const std::string& text) {
  ArgumentFacts facts;
  std::istringstream words{text};
  for (std::string word; words >> word;) {
    if (word.starts_with("__")) word.erase(0, 2);
    if (word == "global") {
      facts.address = CL_KERNEL_ARG_ADDRESS_GLOBAL;
    } else if (word == "local") {
      facts.address = CL_KERNEL_ARG_ADDRESS_LOCAL;
    } else if (word == "constant") {
      facts.address = CL_KERNEL_ARG_ADDRESS_CONSTANT;
    } else if (word != "const" && word != "restrict") {
      if (!facts.name.empty()) facts.type = facts.name;
      facts.name = word;
    }
  }
  return facts;
}

std::vector<KernelFacts> kernels_in(const std::string& source) {
  constexpr std::string_view kHead = "kernel void ";
  std::vector<KernelFacts> kernels;
  for (std::size_t head = source.find(kHead); head != std::string::npos; head = source.find(kHead, head + 1)) {
    const std::size_t name = head + kHead.size();
    const std::size_t open = source.find('(', name);
    const std::size_t close = source.find(')', name);
    if (close == std::string::npos) break;
    KernelFacts kernel{source.substr(name, open - name), {}};
    std::istringstream arguments{source.substr(open + 1, close - open - 1)};
    for (std::string argument; std::getline(arguments, argument, ',');) {
      kernel.arguments.push_back(argument_from(argument));
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

bool is_built(const _cl_program& program) { return program.status == CL_BUILD_SUCCESS; }

cl_program make_program(cl_context context, std::string source, cl_int* code) {
  if (code) *code = context ? CL_SUCCESS : CL_INVALID_CONTEXT;
  if (!context) return nullptr;
  auto* program = new _cl_program;
  program->context = Ref{context};
  program->source = std::move(source);
  return program;
}

}  // namespace

cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char** parts, const size_t* sizes,
                                     cl_int* code) {
  std::string source;
  for (cl_uint next = 0; next < count; ++next) {
    const std::size_t size = sizes && sizes[next] != 0 ? sizes[next] : std::strlen(parts[next]);
    source.append(parts[next], size);
  }
  return make_program(context, std::move(source), code);
}

// A binary is the source.
cl_program clCreateProgramWithBinary(cl_context context, cl_uint, const cl_device_id*, const size_t* sizes,
                                     const unsigned char** binaries, cl_int* statuses, cl_int* code) {
  if (statuses) statuses[0] = CL_SUCCESS;
  return make_program(context, {reinterpret_cast<const char*>(binaries[0]), sizes[0]}, code);
}

cl_int clRetainProgram(cl_program program) { return retain(program, CL_INVALID_PROGRAM); }
cl_int clReleaseProgram(cl_program program) { return release(program, CL_INVALID_PROGRAM); }

cl_int clBuildProgram(cl_program program, cl_uint, const cl_device_id*, const char* options,
                      void(CL_CALLBACK* notify)(cl_program, void*), void* data) {
  if (!program) return CL_INVALID_PROGRAM;
  const bool works = program->source.find("#error") == std::string::npos;
  program->status = works ? CL_BUILD_SUCCESS : CL_BUILD_ERROR;
  program->options = options ? options : "";
  if (works) program->kernels = kernels_in(program->source);
  if (notify) notify(program, data);
  return works ? CL_SUCCESS : CL_BUILD_PROGRAM_FAILURE;
}

cl_int clGetProgramInfo(cl_program program, cl_program_info query, size_t size, void* value, size_t* size_out) {
  if (!program) return CL_INVALID_PROGRAM;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_PROGRAM_SOURCE:
      return answer(room, program->source);
    case CL_PROGRAM_NUM_DEVICES:
      return answer(room, cl_uint{1});
    case CL_PROGRAM_NUM_KERNELS:
      return is_built(*program) ? answer(room, program->kernels.size()) : CL_INVALID_PROGRAM_EXECUTABLE;
    case CL_PROGRAM_KERNEL_NAMES: {
      if (!is_built(*program)) return CL_INVALID_PROGRAM_EXECUTABLE;
      std::string names;
      for (const auto& kernel : program->kernels) names += (names.empty() ? "" : ";") + kernel.name;
      return answer(room, names);
    }
    case CL_PROGRAM_BINARY_SIZES:
      return answer(room, is_built(*program) ? program->source.size() : std::size_t{0});
    case CL_PROGRAM_BINARIES:
      if (auto** places = static_cast<unsigned char**>(value); places && places[0]) {
        std::copy(program->source.begin(), program->source.end(), places[0]);
      }
      if (size_out) *size_out = sizeof(unsigned char*);
      return CL_SUCCESS;
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clGetProgramBuildInfo(cl_program program, cl_device_id, cl_program_build_info query, size_t size, void* value,
                             size_t* size_out) {
  if (!program) return CL_INVALID_PROGRAM;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_PROGRAM_BUILD_STATUS:
      return answer(room, program->status);
    case CL_PROGRAM_BUILD_OPTIONS:
      return answer(room, program->options);
    case CL_PROGRAM_BUILD_LOG:
      return answer(room, std::string{program->status == CL_BUILD_ERROR ? "there is an #error" : ""});
    case CL_PROGRAM_BINARY_TYPE:
      return answer(room, static_cast<cl_program_binary_type>(is_built(*program) ? CL_PROGRAM_BINARY_TYPE_EXECUTABLE
                                                                                 : CL_PROGRAM_BINARY_TYPE_NONE));
    default:
      return CL_INVALID_VALUE;
  }
}

cl_kernel clCreateKernel(cl_program program, const char* name, cl_int* code) {
  const auto found = std::find_if(program->kernels.begin(), program->kernels.end(),
                                  [&](const KernelFacts& facts) { return facts.name == name; });
  const bool is_there = found != program->kernels.end();
  if (code) *code = is_there ? CL_SUCCESS : CL_INVALID_KERNEL_NAME;
  if (!is_there) return nullptr;
  auto* kernel = new _cl_kernel;
  kernel->program = Ref{program};
  kernel->facts = *found;
  kernel->memory.resize(found->arguments.size());
  return kernel;
}

cl_int clRetainKernel(cl_kernel kernel) { return retain(kernel, CL_INVALID_KERNEL); }
cl_int clReleaseKernel(cl_kernel kernel) { return release(kernel, CL_INVALID_KERNEL); }

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  if (!kernel) return CL_INVALID_KERNEL;
  if (index >= kernel->memory.size()) return CL_INVALID_ARG_INDEX;
  if (kernel->facts.arguments[index].address != CL_KERNEL_ARG_ADDRESS_GLOBAL) return CL_SUCCESS;
  if (size != sizeof(cl_mem)) return CL_INVALID_ARG_SIZE;
  kernel->memory[index] = Ref{value ? *static_cast<const cl_mem*>(value) : nullptr};
  return CL_SUCCESS;
}

cl_int clGetKernelInfo(cl_kernel kernel, cl_kernel_info query, size_t size, void* value, size_t* size_out) {
  if (!kernel) return CL_INVALID_KERNEL;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_KERNEL_FUNCTION_NAME:
      return answer(room, kernel->facts.name);
    case CL_KERNEL_NUM_ARGS:
      return answer(room, static_cast<cl_uint>(kernel->facts.arguments.size()));
    case CL_KERNEL_ATTRIBUTES:
      return answer(room, std::string{});
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clGetKernelArgInfo(cl_kernel kernel, cl_uint index, cl_kernel_arg_info query, size_t size, void* value,
                          size_t* size_out) {
  if (!kernel) return CL_INVALID_KERNEL;
  if (index >= kernel->facts.arguments.size()) return CL_INVALID_ARG_INDEX;
  const ArgumentFacts& argument = kernel->facts.arguments[index];
  const Room room{size, value, size_out};
  switch (query) {
    case CL_KERNEL_ARG_ADDRESS_QUALIFIER:
      return answer(room, argument.address);
    case CL_KERNEL_ARG_ACCESS_QUALIFIER:
      return answer(room, cl_kernel_arg_access_qualifier{CL_KERNEL_ARG_ACCESS_NONE});
    case CL_KERNEL_ARG_TYPE_QUALIFIER:
      return answer(room, cl_kernel_arg_type_qualifier{CL_KERNEL_ARG_TYPE_NONE});
    case CL_KERNEL_ARG_TYPE_NAME:
      return answer(room, argument.type);
    case CL_KERNEL_ARG_NAME:
      return answer(room, argument.name);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id, cl_kernel_work_group_info query, size_t size,
                                void* value, size_t* size_out) {
  if (!kernel) return CL_INVALID_KERNEL;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_KERNEL_WORK_GROUP_SIZE:
      return answer(room, std::size_t{1024});
    case CL_KERNEL_COMPILE_WORK_GROUP_SIZE:
      return answer(room, std::array<std::size_t, 3>{});
    case CL_KERNEL_LOCAL_MEM_SIZE:
    case CL_KERNEL_PRIVATE_MEM_SIZE:
      return answer(room, cl_ulong{0});
    case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
      return answer(room, std::size_t{1});
    default:
      return CL_INVALID_VALUE;
  }
}

}  // namespace fake
