// The driver's table of functions. Bodies are in the files by family; around each is what FAKE_VENDOR tells it to do.
#pragma once

#include <CL/cl_icd.h>

#include <type_traits>

namespace fake {

const cl_icd_dispatch& table();

#define FAKE_CALL(name) std::remove_pointer_t<decltype(cl_icd_dispatch::name)> name;
#define FAKE_MISSING(name)
#include "calls.inc"
#undef FAKE_CALL
#undef FAKE_MISSING

}  // namespace fake
