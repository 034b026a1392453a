#include "objects/image_format.hpp"

namespace grus {
namespace {

std::size_t channels(cl_channel_order order) {
  switch (order) {
    case CL_R:
    case CL_A:
    case CL_INTENSITY:
    case CL_LUMINANCE:
    case CL_Rx:
    case CL_DEPTH:
      return 1;
    case CL_RG:
    case CL_RA:
    case CL_RGx:
      return 2;
    case CL_RGB:
    case CL_RGBx:
    case CL_sRGB:
      return 3;
    case CL_RGBA:
    case CL_BGRA:
    case CL_ARGB:
    case CL_ABGR:
    case CL_sRGBA:
    case CL_sBGRA:
    case CL_sRGBx:
      return 4;
    default:
      return 0;
  }
}

std::size_t channel_size(cl_channel_type type) {
  switch (type) {
    case CL_SNORM_INT8:
    case CL_UNORM_INT8:
    case CL_SIGNED_INT8:
    case CL_UNSIGNED_INT8:
      return 1;
    case CL_SNORM_INT16:
    case CL_UNORM_INT16:
    case CL_SIGNED_INT16:
    case CL_UNSIGNED_INT16:
    case CL_HALF_FLOAT:
      return 2;
    case CL_SIGNED_INT32:
    case CL_UNSIGNED_INT32:
    case CL_FLOAT:
      return 4;
    default:
      return 0;
  }
}

}  // namespace

std::size_t element_size(const cl_image_format& format) {
  const cl_channel_type type = format.image_channel_data_type;
  const bool rgb = format.image_channel_order == CL_RGB || format.image_channel_order == CL_RGBx;
  switch (type) {
    case CL_UNORM_SHORT_565:
    case CL_UNORM_SHORT_555:
      return rgb ? 2 : 0;
    case CL_UNORM_INT_101010:
      return rgb ? 4 : 0;
    case CL_UNORM_INT_101010_2:
      return format.image_channel_order == CL_RGBA ? 4 : 0;
    default:
      break;
  }
  if (rgb) return 0;
  return channels(format.image_channel_order) * channel_size(type);
}

HostLayout layout_of(const cl_image_desc& desc, std::size_t element, std::size_t row_pitch, std::size_t slice_pitch) {
  ImageFacts facts;
  facts.desc = desc;
  const Triple extent = facts.extent();
  HostLayout layout;
  layout.row = row_pitch != 0 ? row_pitch : extent[0] * element;
  if (desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY) {
    layout.slice = slice_pitch != 0 ? slice_pitch : layout.row;
    layout.size = layout.slice * extent[1];
    return layout;
  }
  layout.slice = slice_pitch != 0 ? slice_pitch : layout.row * extent[1];
  layout.size = layout.slice * extent[2];
  return layout;
}

}  // namespace grus
