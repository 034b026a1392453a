// Image formats and layouts: how many bytes a pixel takes, and an image in host memory.
#pragma once

#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <cstddef>

#include "objects/memory.hpp"

namespace grus {

// 0 if order and type don't go together, or aren't known here.
std::size_t element_size(const cl_image_format& format);

// The pitches that host memory has: as given, else without gaps.
struct HostLayout {
  std::size_t row = 0;
  std::size_t slice = 0;
  std::size_t size = 0;
};

HostLayout layout_of(const cl_image_desc& desc, std::size_t element, std::size_t row_pitch, std::size_t slice_pitch);

}  // namespace grus
