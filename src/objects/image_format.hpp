// Image formats: how many bytes a pixel takes.
#pragma once

#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <cstddef>

namespace grus {

// 0 if order and type don't go together, or aren't known here.
std::size_t element_size(const cl_image_format& format);

}  // namespace grus
