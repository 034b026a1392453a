// The program binaries that Grus hands out: what the program was made of, what is known of its kernels, and the
// vendor's own binary. They load anywhere: on the same kind of device from the vendor's binary, on any other from
// source.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "objects/program.hpp"

namespace grus {

struct ProgramBinary {
  std::string identity;  // of the device that the vendor's binary is for
  cl_program_binary_type type = CL_PROGRAM_BINARY_TYPE_NONE;
  Bytes vendor_binary;
  std::shared_ptr<const Recipe> recipe;
  std::map<std::string, std::vector<ArgumentFacts>> arguments;
};

Bytes encode(const ProgramBinary& binary);
bool is_encoded(std::span<const std::byte> bytes);  // has the mark of one
// Nothing if the bytes are damaged or of a later version: they come from a file that anybody may have written.
std::optional<ProgramBinary> decode(std::span<const std::byte> bytes);

}  // namespace grus
