// Entry points: images.
#include <algorithm>

#include "api/answer.hpp"
#include "api/call.hpp"
#include "api/check.hpp"
#include "api/memory_flags.hpp"
#include "objects/image_format.hpp"
#include "objects/profile.hpp"

namespace grus::api {
namespace {

bool is_image_type(cl_mem_object_type type) {
  switch (type) {
    case CL_MEM_OBJECT_IMAGE1D:
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
    case CL_MEM_OBJECT_IMAGE1D_BUFFER:
    case CL_MEM_OBJECT_IMAGE2D:
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
    case CL_MEM_OBJECT_IMAGE3D:
      return true;
    default:
      return false;
  }
}

bool fits(const DeviceLimits& limits, const cl_image_desc& desc) {
  switch (desc.image_type) {
    case CL_MEM_OBJECT_IMAGE1D_BUFFER:
      return desc.image_width <= limits.image_buffer_max;
    case CL_MEM_OBJECT_IMAGE1D:
      return desc.image_width <= limits.image2d_max[0];
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
      return desc.image_width <= limits.image2d_max[0] && desc.image_array_size <= limits.image_array_max;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
      if (desc.image_array_size > limits.image_array_max) return false;
      [[fallthrough]];
    case CL_MEM_OBJECT_IMAGE2D:
      return desc.image_width <= limits.image2d_max[0] && desc.image_height <= limits.image2d_max[1];
    default:
      return desc.image_width <= limits.image3d_max[0] && desc.image_height <= limits.image3d_max[1] &&
             desc.image_depth <= limits.image3d_max[2];
  }
}

bool has_zero_extent(const cl_image_desc& desc) {
  ImageFacts facts;
  facts.desc = desc;
  const Triple extent = facts.extent();
  return extent[0] == 0 || extent[1] == 0 || extent[2] == 0;
}

// Pitches that hold a row and a slice, and don't overflow; OpenCL 3.0 §5.3.1.2.
bool are_valid_pitches(const cl_image_desc& desc, std::size_t element) {
  ImageFacts facts;
  facts.desc = desc;
  const Triple extent = facts.extent();
  const bool array_1d = desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
  const bool has_slices =
      array_1d || desc.image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY || desc.image_type == CL_MEM_OBJECT_IMAGE3D;
  const std::size_t tight_row = extent[0] * element;
  const std::size_t row = desc.image_row_pitch != 0 ? desc.image_row_pitch : tight_row;
  std::size_t tight_slice = 0;
  if (row < tight_row || row % element != 0 || __builtin_mul_overflow(row, array_1d ? 1 : extent[1], &tight_slice))
    return false;
  if (!has_slices) return true;
  const std::size_t slice = desc.image_slice_pitch != 0 ? desc.image_slice_pitch : tight_slice;
  std::size_t all = 0;
  return slice >= tight_slice && slice % row == 0 &&
         !__builtin_mul_overflow(slice, array_1d ? extent[1] : extent[2], &all);
}

cl_int check_pitches(const cl_image_desc& desc, std::size_t element, const void* host_ptr, bool from_buffer) {
  if (!host_ptr && !from_buffer && (desc.image_row_pitch != 0 || desc.image_slice_pitch != 0))
    return CL_INVALID_IMAGE_DESCRIPTOR;
  if (!are_valid_pitches(desc, element)) return CL_INVALID_IMAGE_DESCRIPTOR;
  return desc.num_mip_levels != 0 || desc.num_samples != 0 ? CL_INVALID_IMAGE_DESCRIPTOR : CL_SUCCESS;
}

void copy_into_tight(std::byte* to, const HostLayout& tight, const void* from, const HostLayout& given,
                     const cl_image_desc& desc) {
  ImageFacts facts;
  facts.desc = desc;
  Triple extent = facts.extent();
  const auto* source = static_cast<const std::byte*>(from);
  if (desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY) extent = {extent[0], 1, extent[1]};
  for (std::size_t slice = 0; slice < extent[2]; ++slice) {
    for (std::size_t row = 0; row < extent[1]; ++row) {
      std::memcpy(to + slice * tight.slice + row * tight.row, source + slice * given.slice + row * given.row,
                  tight.row);
    }
  }
}

void choose_home(Memory& image, std::size_t element, void* host_ptr, NewImage& order) {
  const cl_image_desc& desc = order.desc;
  const HostLayout tight = layout_of(desc, element, 0, 0);
  if (image.parent) {  // whose flags it has inherited
    image.host = image.parent->host;
  } else if (image.flags & CL_MEM_USE_HOST_PTR) {
    image.host_ptr = host_ptr;
    image.host = static_cast<std::byte*>(host_ptr);
  } else if (auto home = home_for(image, tight.size)) {
    image.take_host_memory(std::move(home));
    if (host_ptr) {
      const HostLayout given = layout_of(desc, element, desc.image_row_pitch, desc.image_slice_pitch);
      copy_into_tight(image.host, tight, host_ptr, given, desc);
    }
    order.desc.image_row_pitch = 0;
    order.desc.image_slice_pitch = 0;
  } else {
    order.initial = host_ptr;
  }
  if (!image.parent) order.host = image.host;
  order.host_bytes = layout_of(order.desc, element, order.desc.image_row_pitch, order.desc.image_slice_pitch).size;
  order.host_memory = image.host_memory;
}

// The object that an image is to be a view of, checked; null if it is none.
Result<Memory*> parent_of(const Context& context, const cl_image_desc& desc) {
  if (!desc.mem_object) {
    if (desc.image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER) return Failure{CL_INVALID_IMAGE_DESCRIPTOR};
    return static_cast<Memory*>(nullptr);
  }
  const bool may_have = desc.image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER || desc.image_type == CL_MEM_OBJECT_IMAGE2D;
  Memory* parent = live<Memory>(desc.mem_object);
  if (!may_have || !parent) return Failure{CL_INVALID_IMAGE_DESCRIPTOR};
  if (parent->context.get() != &context) return Failure{CL_INVALID_CONTEXT};
  if (desc.image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER && parent->type != CL_MEM_OBJECT_BUFFER)
    return Failure{CL_INVALID_IMAGE_DESCRIPTOR};
  return parent;
}

Result<cl_mem> create_image(cl_context handle, const cl_mem_properties* properties, cl_mem_flags flags,
                            const cl_image_format* format, const cl_image_desc* desc, void* host_ptr) {
  Context* context = live<Context>(handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  if (properties && *properties != 0) return Failure{CL_INVALID_PROPERTY};
  if (!are_valid_flags(flags)) return Failure{CL_INVALID_VALUE};
  if (!format) return Failure{CL_INVALID_IMAGE_FORMAT_DESCRIPTOR};
  if (!desc || !is_image_type(desc->image_type)) return Failure{CL_INVALID_IMAGE_DESCRIPTOR};
  if (std::none_of(context->devices.begin(), context->devices.end(),
                   [](const auto& device) { return device->limits.images; })) {
    return Failure{CL_INVALID_OPERATION};
  }
  const auto parent = parent_of(*context, *desc);
  if (!parent) return Failure{parent.error()};
  const std::size_t element = element_size(*format);
  if (element == 0) return Failure{CL_INVALID_IMAGE_FORMAT_DESCRIPTOR};
  if (has_zero_extent(*desc)) return Failure{CL_INVALID_IMAGE_SIZE};
  if (std::none_of(context->devices.begin(), context->devices.end(),
                   [&](const auto& device) { return fits(device->limits, *desc); })) {
    return Failure{CL_INVALID_IMAGE_SIZE};
  }
  if (*parent) {
    if (host_ptr) return Failure{CL_INVALID_HOST_PTR};
    if (!inherit_flags((*parent)->flags, flags)) return Failure{CL_INVALID_VALUE};
  } else if (!fits_host_pointer(flags, host_ptr)) {
    return Failure{CL_INVALID_HOST_PTR};
  }
  if (const cl_int code = check_pitches(*desc, element, host_ptr, *parent != nullptr); code != CL_SUCCESS)
    return Failure{code};
  if (*parent && !(*parent)->is_image() && layout_of(*desc, element, desc->image_row_pitch, 0).size > (*parent)->size) {
    return Failure{CL_INVALID_IMAGE_SIZE};
  }

  auto image = Ref<Memory>::adopt(slab<Memory>().create(*context, desc->image_type));
  image->flags = flags & kDeviceAccess ? flags : flags | CL_MEM_READ_WRITE;
  image->parent = Ref{*parent};
  if (properties) image->properties = {0};
  NewImage order;
  order.id = image->id();
  order.context = context->id();
  order.flags = flags & kDeviceAccess;  // what the host may do is checked here; moves and mappings may do all
  order.properties = image->properties;
  order.format = *format;
  order.desc = *desc;
  if (*parent) order.from = (*parent)->id();
  try {
    choose_home(*image, element, host_ptr, order);
  } catch (const std::bad_alloc&) {
    return Failure{CL_MEM_OBJECT_ALLOCATION_FAILURE};
  }
  const auto layout = executor_of(*context).create_image(order);
  if (!layout) return Failure{layout.error()};
  image->created = true;
  image->size = layout->size;
  image->image = std::make_unique<ImageFacts>();
  image->image->format = *format;
  image->image->desc = *desc;
  image->image->element_size = layout->element_size;
  image->image->row_pitch = layout->row_pitch;
  image->image->slice_pitch = layout->slice_pitch;
  return reinterpret_cast<cl_mem>(image.hand_out());
}

// Before there were descriptors, a pitch that doesn't fit was a wrong size.
Result<cl_mem> as_in_1_0(Result<cl_mem> image) {
  if (!image && image.error() == CL_INVALID_IMAGE_DESCRIPTOR) return Failure{CL_INVALID_IMAGE_SIZE};
  return image;
}

}  // namespace

Result<cl_mem> clCreateImage(cl_context handle, cl_mem_flags flags, const cl_image_format* format,
                             const cl_image_desc* desc, void* host_ptr) {
  return create_image(handle, nullptr, flags, format, desc, host_ptr);
}

Result<cl_mem> clCreateImageWithProperties(cl_context handle, const cl_mem_properties* properties, cl_mem_flags flags,
                                           const cl_image_format* format, const cl_image_desc* desc, void* host_ptr) {
  return create_image(handle, properties, flags, format, desc, host_ptr);
}

Result<cl_mem> clCreateImage2D(cl_context handle, cl_mem_flags flags, const cl_image_format* format, std::size_t width,
                               std::size_t height, std::size_t row_pitch, void* host_ptr) {
  cl_image_desc desc{};
  desc.image_type = CL_MEM_OBJECT_IMAGE2D;
  desc.image_width = width;
  desc.image_height = height;
  desc.image_row_pitch = row_pitch;
  return as_in_1_0(create_image(handle, nullptr, flags, format, &desc, host_ptr));
}

Result<cl_mem> clCreateImage3D(cl_context handle, cl_mem_flags flags, const cl_image_format* format, std::size_t width,
                               std::size_t height, std::size_t depth, std::size_t row_pitch, std::size_t slice_pitch,
                               void* host_ptr) {
  cl_image_desc desc{};
  desc.image_type = CL_MEM_OBJECT_IMAGE3D;
  desc.image_width = width;
  desc.image_height = height;
  desc.image_depth = depth;
  desc.image_row_pitch = row_pitch;
  desc.image_slice_pitch = slice_pitch;
  return as_in_1_0(create_image(handle, nullptr, flags, format, &desc, host_ptr));
}

cl_int clGetSupportedImageFormats(cl_context handle, cl_mem_flags flags, cl_mem_object_type type, cl_uint entries,
                                  cl_image_format* formats, cl_uint* count_out) {
  Context* context = live<Context>(handle);
  if (!context) return CL_INVALID_CONTEXT;
  if (!are_valid_flags(flags) || !is_image_type(type) || (formats && entries == 0)) return CL_INVALID_VALUE;
  const auto& all = context->image_formats.get(Context::formats_key(flags, type), [&] {
    auto given = executor_of(*context).supported_formats(context->id(), flags, type);
    return profile_to_tell() ? profile_to_tell()->formats_instead_of(flags, type, std::move(given)) : given;
  });
  if (!all) return all.error();
  const std::size_t count = all->size() / sizeof(cl_image_format);
  if (formats) std::memcpy(formats, all->data(), std::min<std::size_t>(count, entries) * sizeof(cl_image_format));
  if (count_out) *count_out = static_cast<cl_uint>(count);
  return CL_SUCCESS;
}

cl_int clGetImageInfo(cl_mem handle, cl_image_info query, std::size_t size, void* value, std::size_t* size_ret) {
  Memory* memory = live<Memory>(handle);
  if (!memory || !memory->is_image()) return CL_INVALID_MEM_OBJECT;
  const Room room{size, value, size_ret};
  const ImageFacts& image = *memory->image;
  const cl_image_desc& desc = image.desc;
  const bool is_1d = desc.image_type == CL_MEM_OBJECT_IMAGE1D || desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY ||
                     desc.image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER;
  const bool is_array =
      desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY || desc.image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY;
  const bool is_3d = desc.image_type == CL_MEM_OBJECT_IMAGE3D;
  switch (query) {
    case CL_IMAGE_FORMAT:
      return answer(room, image.format);
    case CL_IMAGE_ELEMENT_SIZE:
      return answer(room, image.element_size);
    case CL_IMAGE_ROW_PITCH:
      return answer(room, image.row_pitch);
    case CL_IMAGE_SLICE_PITCH:
      return answer(room, image.slice_pitch);
    case CL_IMAGE_WIDTH:
      return answer(room, desc.image_width);
    case CL_IMAGE_HEIGHT:
      return answer(room, is_1d ? std::size_t{0} : desc.image_height);
    case CL_IMAGE_DEPTH:
      return answer(room, is_3d ? desc.image_depth : std::size_t{0});
    case CL_IMAGE_ARRAY_SIZE:
      return answer(room, is_array ? desc.image_array_size : std::size_t{0});
    case CL_IMAGE_BUFFER: {
      Memory* buffer = memory->parent.get();
      return answer(room, reinterpret_cast<cl_mem>(buffer && !buffer->is_image() ? buffer : nullptr));
    }
    case CL_IMAGE_NUM_MIP_LEVELS:
      return answer(room, desc.num_mip_levels);
    case CL_IMAGE_NUM_SAMPLES:
      return answer(room, desc.num_samples);
    default:
      return CL_INVALID_VALUE;
  }
}

}  // namespace grus::api
