#pragma once

#include <CL/cl_icd.h>

#include <string_view>

namespace grus {

const cl_icd_dispatch& dispatch_table();

}  // namespace grus
