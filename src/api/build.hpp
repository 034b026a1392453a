// Building, compiling and linking: outside the gate, each into a fresh program below the seam.
#pragma once

#include "command/executor.hpp"

namespace grus::api {

// Compiles a program again from its recipe, which says how.
cl_int compile_again(Program& program);

}  // namespace grus::api
