// Entry points: commands on images.
#include "api/call.hpp"
#include "api/check_memory.hpp"

namespace grus::api {
namespace {

// The pitches of host memory beside an image: 0 means without gaps, anything else must hold a row and a slice. False as
// well if they overflow.
bool fit_pitches(const Memory& image, const Triple& region, std::size_t row_pitch, std::size_t slice_pitch) {
  const bool array_1d = image.type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
  const bool has_slices = array_1d || image.type == CL_MEM_OBJECT_IMAGE3D || image.type == CL_MEM_OBJECT_IMAGE2D_ARRAY;
  if (slice_pitch != 0 && !has_slices) return false;
  const std::size_t row = region[0] * image.image->element_size;
  if (row_pitch == 0) row_pitch = row;
  std::size_t slice = 0;
  if (row_pitch < row || __builtin_mul_overflow(row_pitch, array_1d ? 1 : region[1], &slice)) return false;
  if (slice_pitch == 0) slice_pitch = slice;
  std::size_t all = 0;
  return slice_pitch >= slice && !__builtin_mul_overflow(slice_pitch, array_1d ? region[1] : region[2], &all);
}

bool share_pixels(const Triple& from, const Triple& to, const Triple& region) {
  for (int dimension = 0; dimension < 3; ++dimension) {
    if (from[dimension] >= to[dimension] + region[dimension] || to[dimension] >= from[dimension] + region[dimension])
      return false;
  }
  return true;
}

bool same_format(const Memory& a, const Memory& b) {
  return a.image->format.image_channel_order == b.image->format.image_channel_order &&
         a.image->format.image_channel_data_type == b.image->format.image_channel_data_type;
}

std::size_t bytes_of(const Memory& image, const Triple& region) {
  return region[0] * region[1] * region[2] * image.image->element_size;
}

}  // namespace

cl_int clEnqueueReadImage(cl_command_queue queue_handle, cl_mem handle, cl_bool blocking, const std::size_t* origin,
                          const std::size_t* region, std::size_t row_pitch, std::size_t slice_pitch, void* to,
                          cl_uint wait_count, const cl_event* wait_handles, cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* image = live<Memory>(handle);
  if (const cl_int code = check_image(*queue, image, Access::host_reads); code != CL_SUCCESS) return code;
  if (!to || !origin || !region || !is_within(*image->image, triple(origin), triple(region))) return CL_INVALID_VALUE;
  if (!fit_pitches(*image, triple(region), row_pitch, slice_pitch)) return CL_INVALID_VALUE;
  return enqueue(command::ReadImage{{image->id()}, {triple(origin), triple(region)}, row_pitch, slice_pitch, to},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_READ_IMAGE, blocking_of(blocking)});
}

cl_int clEnqueueWriteImage(cl_command_queue queue_handle, cl_mem handle, cl_bool blocking, const std::size_t* origin,
                           const std::size_t* region, std::size_t row_pitch, std::size_t slice_pitch, const void* from,
                           cl_uint wait_count, const cl_event* wait_handles, cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* image = live<Memory>(handle);
  if (const cl_int code = check_image(*queue, image, Access::host_writes); code != CL_SUCCESS) return code;
  if (!from || !origin || !region || !is_within(*image->image, triple(origin), triple(region))) return CL_INVALID_VALUE;
  if (!fit_pitches(*image, triple(region), row_pitch, slice_pitch)) return CL_INVALID_VALUE;
  return enqueue(command::WriteImage{{image->id()}, {triple(origin), triple(region)}, row_pitch, slice_pitch, from},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_WRITE_IMAGE, blocking_of(blocking)});
}

cl_int clEnqueueCopyImage(cl_command_queue queue_handle, cl_mem from_handle, cl_mem to_handle,
                          const std::size_t* from_origin, const std::size_t* to_origin, const std::size_t* region,
                          cl_uint wait_count, const cl_event* wait_handles, cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* from = live<Memory>(from_handle);
  Memory* to = live<Memory>(to_handle);
  if (const cl_int code = check_image(*queue, from, Access::device_only); code != CL_SUCCESS) return code;
  if (const cl_int code = check_image(*queue, to, Access::device_only); code != CL_SUCCESS) return code;
  if (!same_format(*from, *to)) return CL_IMAGE_FORMAT_MISMATCH;
  if (!from_origin || !to_origin || !region) return CL_INVALID_VALUE;
  const command::CopyImage copy{{from->id(), to->id()}, triple(from_origin), triple(to_origin), triple(region)};
  if (!is_within(*from->image, copy.from_origin, copy.region) || !is_within(*to->image, copy.to_origin, copy.region))
    return CL_INVALID_VALUE;
  if (from == to && share_pixels(copy.from_origin, copy.to_origin, copy.region)) return CL_MEM_COPY_OVERLAP;
  return enqueue(copy, {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_COPY_IMAGE});
}

cl_int clEnqueueCopyImageToBuffer(cl_command_queue queue_handle, cl_mem from_handle, cl_mem to_handle,
                                  const std::size_t* origin, const std::size_t* region, std::size_t offset,
                                  cl_uint wait_count, const cl_event* wait_handles, cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* from = live<Memory>(from_handle);
  Memory* to = live<Memory>(to_handle);
  if (const cl_int code = check_image(*queue, from, Access::device_only); code != CL_SUCCESS) return code;
  if (const cl_int code = check_buffer(*queue, to, Access::device_only); code != CL_SUCCESS) return code;
  if (from->parent.get() == to) return CL_INVALID_MEM_OBJECT;  // a view of that very buffer
  if (!origin || !region || !is_within(*from->image, triple(origin), triple(region))) return CL_INVALID_VALUE;
  if (overflows(offset, bytes_of(*from, triple(region)), to->size)) return CL_INVALID_VALUE;
  return enqueue(command::CopyImageToBuffer{{from->id(), to->id()}, {triple(origin), triple(region)}, offset},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_COPY_IMAGE_TO_BUFFER});
}

cl_int clEnqueueCopyBufferToImage(cl_command_queue queue_handle, cl_mem from_handle, cl_mem to_handle,
                                  std::size_t offset, const std::size_t* origin, const std::size_t* region,
                                  cl_uint wait_count, const cl_event* wait_handles, cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* from = live<Memory>(from_handle);
  Memory* to = live<Memory>(to_handle);
  if (const cl_int code = check_buffer(*queue, from, Access::device_only); code != CL_SUCCESS) return code;
  if (const cl_int code = check_image(*queue, to, Access::device_only); code != CL_SUCCESS) return code;
  if (to->parent.get() == from) return CL_INVALID_MEM_OBJECT;  // a view of that very buffer
  if (!origin || !region || !is_within(*to->image, triple(origin), triple(region))) return CL_INVALID_VALUE;
  if (overflows(offset, bytes_of(*to, triple(region)), from->size)) return CL_INVALID_VALUE;
  return enqueue(command::CopyBufferToImage{{from->id(), to->id()}, offset, {triple(origin), triple(region)}},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_COPY_BUFFER_TO_IMAGE});
}

cl_int clEnqueueFillImage(cl_command_queue queue_handle, cl_mem handle, const void* color, const std::size_t* origin,
                          const std::size_t* region, cl_uint wait_count, const cl_event* wait_handles,
                          cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* image = live<Memory>(handle);
  if (const cl_int code = check_image(*queue, image, Access::device_only); code != CL_SUCCESS) return code;
  if (!color || !origin || !region || !is_within(*image->image, triple(origin), triple(region)))
    return CL_INVALID_VALUE;
  command::FillImage fill{{image->id()}, {}, {triple(origin), triple(region)}};
  // Depth images have one channel, all others take four.
  const std::size_t color_size =
      image->image->format.image_channel_order == CL_DEPTH ? sizeof(cl_float) : fill.color.size();
  std::memcpy(fill.color.data(), color, color_size);
  return enqueue(fill, {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_FILL_IMAGE});
}

}  // namespace grus::api
