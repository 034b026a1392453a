// Roles that only a few calls have: descriptions of images, arguments of kernels, and what has to be made for each
// call.
#pragma once

#include "unit/bad_input/roles.hpp"

namespace grus::test {

// --- Images
// ------------------------------------------------------------------------------------------------------------

inline auto image_format() {
  const auto format = [](cl_channel_order order, cl_channel_type type) {
    return keep<cl_image_format>({{order, type}});
  };
  return Parameter<const cl_image_format*>{format(CL_RGBA, CL_UNSIGNED_INT8)}
      .null(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)
      .but("of an unknown order", format(0x7777, CL_UNSIGNED_INT8), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)
      .but("of an unknown type", format(CL_RGBA, 0), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)
      .but("of a type that doesn't fit", format(CL_RGBA, CL_UNORM_SHORT_565), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
}

// An image that measures kImageSide in every dimension it has, but for what is changed.
template <typename Change>
const cl_image_desc* description(cl_mem_object_type type, Change change) {
  cl_image_desc description{};
  description.image_type = type;
  description.image_width = kImageSide;
  description.image_height = kImageSide;
  description.image_depth = kImageSide;
  description.image_array_size = kImageSide;
  change(description);
  return keep<cl_image_desc>({description});
}

inline auto image_description() {
  const auto but = [](auto change) { return description(CL_MEM_OBJECT_IMAGE2D, change); };
  return Parameter<const cl_image_desc*>{but([](auto&) {})}
      .null(CL_INVALID_IMAGE_DESCRIPTOR)
      .but("of no type", but([](auto& d) { d.image_type = 0; }), CL_INVALID_IMAGE_DESCRIPTOR)
      .but("of a buffer", but([](auto& d) { d.image_type = CL_MEM_OBJECT_BUFFER; }), CL_INVALID_IMAGE_DESCRIPTOR)
      .but("of no width", but([](auto& d) { d.image_width = 0; }), CL_INVALID_IMAGE_SIZE)
      .but("of no height", but([](auto& d) { d.image_height = 0; }), CL_INVALID_IMAGE_SIZE)
      .but("too wide", but([](auto& d) { d.image_width = SIZE_MAX; }), CL_INVALID_IMAGE_SIZE)
      .but("too high", but([](auto& d) { d.image_height = SIZE_MAX; }), CL_INVALID_IMAGE_SIZE)
      .but("with a pitch but no memory", but([](auto& d) { d.image_row_pitch = 64; }), CL_INVALID_IMAGE_DESCRIPTOR)
      .but("with mipmaps", but([](auto& d) { d.num_mip_levels = 2; }), CL_INVALID_IMAGE_DESCRIPTOR)
      .but("with samples", but([](auto& d) { d.num_samples = 2; }), CL_INVALID_IMAGE_DESCRIPTOR);
}

// Pitches of an image of 4 bytes per pixel: that a dimension says something wrong about memory.
inline auto image_description_with_memory(cl_mem_object_type type) {
  const Codes wrong = CL_INVALID_IMAGE_DESCRIPTOR;
  const std::size_t row = 4 * kImageSide;
  const std::size_t slice = type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? row : row * kImageSide;
  const auto pitches = [=](std::size_t row_pitch, std::size_t slice_pitch) {
    return description(type, [=](auto& d) {
      d.image_row_pitch = row_pitch;
      d.image_slice_pitch = slice_pitch;
    });
  };
  return Parameter<const cl_image_desc*>{pitches(row, slice)}
      .but("of rows too short", pitches(row - 4, 0), wrong)
      .but("of rows that end within a pixel", pitches(row + 1, 0), wrong)
      .but("of slices too small", pitches(row, slice / 2), wrong)
      .but("of slices that are smaller than a row", pitches(row, 4), wrong)
      .but("of slices too small for rows that are implied", pitches(0, 4), wrong)
      .but("of slices that end within a row", pitches(row, slice + 4), wrong)
      .but("of rows that overflow", pitches(SIZE_MAX - 3, 0), wrong)
      .but("of slices that overflow", pitches(row, SIZE_MAX - (row - 1)), wrong);
}

inline auto image_description_from_buffer() {
  const auto from = [](cl_mem memory) {
    return description(CL_MEM_OBJECT_IMAGE1D_BUFFER, [=](auto& d) { d.mem_object = memory; });
  };
  Parameter<const cl_image_desc*> parameter{from(world().own.buffer)};
  const auto buffers =
      handle(world().own.buffer, CL_INVALID_IMAGE_DESCRIPTOR)
          .but("an image", world().own.image, CL_INVALID_IMAGE_DESCRIPTOR)
          .but("of another context", world().other.buffer, {CL_INVALID_CONTEXT, CL_INVALID_IMAGE_DESCRIPTOR});
  for (const auto& bad : buffers.values().bad) {
    parameter.but_made_by(
        "made from " + bad.what, [=, make = bad.make] { return to_word(from(from_word<cl_mem>(make()))); }, bad.codes);
  }
  return parameter
      .but("wider than the buffer",
           description(CL_MEM_OBJECT_IMAGE1D_BUFFER,
                       [](auto& d) {
                         d.mem_object = world().own.buffer;
                         d.image_width = kBufferSize;
                       }),
           {CL_INVALID_IMAGE_SIZE, CL_INVALID_IMAGE_DESCRIPTOR})
      .but("of a type that isn't made from buffers",
           description(CL_MEM_OBJECT_IMAGE3D, [](auto& d) { d.mem_object = world().own.buffer; }),
           CL_INVALID_IMAGE_DESCRIPTOR);
}

// What the calls of OpenCL 1.0 have instead.
inline auto extent() {
  return Parameter<std::size_t>{kImageSide}
      .but("zero", 0, CL_INVALID_IMAGE_SIZE)
      .but("SIZE_MAX", SIZE_MAX, CL_INVALID_IMAGE_SIZE)
      .but("overflowing when multiplied", SIZE_MAX / 4 + 1, CL_INVALID_IMAGE_SIZE);
}
inline auto image_row_pitch() {
  return Parameter<std::size_t>{4 * kImageSide}
      .but("too small", 4, CL_INVALID_IMAGE_SIZE)
      .but("ending within a pixel", 4 * kImageSide + 1, CL_INVALID_IMAGE_SIZE)
      .but("overflowing", SIZE_MAX - 3, CL_INVALID_IMAGE_SIZE);
}
inline auto image_slice_pitch() {
  return Parameter<std::size_t>{4 * kImageSide * kImageSide}
      .but("too small", 4 * kImageSide, CL_INVALID_IMAGE_SIZE)
      .but("ending within a row", 4 * kImageSide * kImageSide + 4, CL_INVALID_IMAGE_SIZE)
      .but("overflowing", SIZE_MAX - 31, CL_INVALID_IMAGE_SIZE);
}

// --- Kernels
// -----------------------------------------------------------------------------------------------------------

inline auto argument_index(cl_uint index) {
  return Parameter<cl_uint>{index}
      .but("too large", kValueArgument + 1, CL_INVALID_ARG_INDEX)
      .but("UINT_MAX", UINT_MAX, CL_INVALID_ARG_INDEX);
}
inline auto handle_size() {
  return Parameter<std::size_t>{sizeof(void*)}
      .but("zero", 0, CL_INVALID_ARG_SIZE)
      .but("too small", sizeof(void*) / 2, CL_INVALID_ARG_SIZE)
      .but("too large", sizeof(void*) * 2, CL_INVALID_ARG_SIZE)
      .but("SIZE_MAX", SIZE_MAX, CL_INVALID_ARG_SIZE);
}
// An argument's value is where its handle lies.
template <Handle T>
Parameter<const void*> object_argument(const Parameter<T>& object) {
  const Values& listed = list(object).values();
  auto parameter = Parameter<const void*>::made_by(listed.good);
  for (const auto& bad : listed.bad) parameter.but_made_by(bad.what, bad.make, bad.codes);
  return parameter;
}
inline Codes sub_group_codes(cl_int code) { return {code, CL_INVALID_OPERATION}; }

// --- Made for each call ----------------------------------------------------------------------------------------------

inline auto new_user_event() {
  auto parameter = handle(world().own.user_event);
  // The call finishes it, and nobody needs it afterwards: the last reference goes with the next one that is made.
  parameter.values().good = [last = std::make_shared<cl_event>()] {
    if (*last) release(*last);
    return to_word(*last = another(cl_event{}));
  };
  return parameter;
}
inline auto mapped_pointer() {
  const auto map = [] {
    return to_word(cl().clEnqueueMapBuffer(world().own.queue, world().own.buffer, CL_TRUE, CL_MAP_READ, 16, 16, 0,
                                           nullptr, nullptr, nullptr));
  };
  return Parameter<void*>::made_by(map)
      .null(CL_INVALID_VALUE)
      .but("not mapped", memory(), CL_INVALID_VALUE)
      .but_made_by(
          "within what is mapped", [map] { return map() + 1; }, CL_INVALID_VALUE);
}

}  // namespace grus::test
