// What a kernel's code tells about it, read once per build and kernel name and shared by all kernel objects.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "objects/facts.hpp"

namespace grus {

enum class ArgumentKind : std::uint8_t { unknown, buffer, image, sampler, local, value };

struct ArgumentFacts {
  ArgumentKind kind = ArgumentKind::unknown;
  bool known = false;  // the compiler kept the argument's description
  cl_kernel_arg_address_qualifier address = CL_KERNEL_ARG_ADDRESS_PRIVATE;
  cl_kernel_arg_access_qualifier access = CL_KERNEL_ARG_ACCESS_NONE;
  cl_kernel_arg_type_qualifier qualifiers = CL_KERNEL_ARG_TYPE_NONE;
  std::string type;
  std::string name;

  // The kind that a description tells. A type that tells nothing (a typedef of sampler_t) stays unknown.
  static ArgumentKind kind_of(const ArgumentFacts& facts);
};

struct KernelFacts {
  std::string name;
  std::string attributes;
  std::vector<ArgumentFacts> arguments;
  // The size that the vendor accepted for a value argument, 0 before the first; one per argument.
  std::unique_ptr<std::atomic<std::size_t>[]> accepted_sizes;
  FactCache work_group;  // by device and query
};

}  // namespace grus
