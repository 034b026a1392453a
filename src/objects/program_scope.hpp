// Program-scope variables live on the device between launches, where Grus can't read them back. Queries lie about them
// (PoCL reports none and keeps their state), so they are looked for in the source and in IL.
#pragma once

#include <string_view>

#include "objects/facts.hpp"

namespace grus {

// Options decide whether a variable without an address space is one: since OpenCL C 2.0 it is.
bool has_program_scope_variables(std::string_view source, std::string_view options);
bool has_program_scope_variables(const Bytes& il);

}  // namespace grus
