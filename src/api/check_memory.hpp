// Checks of the commands on memory objects.
#pragma once

#include "api/check.hpp"

namespace grus::api {

enum class Access : std::uint8_t { host_reads, host_writes, device_only };

// A buffer that a command on this queue may use; OpenCL 3.0 §5.2.2.
inline cl_int check_buffer(const Queue& queue, const Memory* buffer, Access access) {
  if (!buffer || buffer->type != CL_MEM_OBJECT_BUFFER) return CL_INVALID_MEM_OBJECT;
  if (buffer->context.get() != queue.context.get()) return CL_INVALID_CONTEXT;
  if (buffer->parent && buffer->origin % queue.device->limits.base_align_bytes != 0)
    return CL_MISALIGNED_SUB_BUFFER_OFFSET;
  if (access == Access::host_reads && (buffer->flags & (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)))
    return CL_INVALID_OPERATION;
  if (access == Access::host_writes && (buffer->flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)))
    return CL_INVALID_OPERATION;
  return CL_SUCCESS;
}

inline cl_int check_image(const Queue& queue, const Memory* image, Access access) {
  if (!image || !image->is_image()) return CL_INVALID_MEM_OBJECT;
  if (image->context.get() != queue.context.get()) return CL_INVALID_CONTEXT;
  if (!queue.device->limits.images) return CL_INVALID_OPERATION;
  if (access == Access::host_reads && (image->flags & (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)))
    return CL_INVALID_OPERATION;
  if (access == Access::host_writes && (image->flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)))
    return CL_INVALID_OPERATION;
  return CL_SUCCESS;
}

inline Triple triple(const std::size_t* values) { return {values[0], values[1], values[2]}; }

// A rectangle in linear memory: fills in the pitches that were left out. False if it is none, or overflows.
bool complete_pitches(const Triple& region, std::size_t& row_pitch, std::size_t& slice_pitch);
// One past its last byte; SIZE_MAX if that overflows.
std::size_t end_of(const Triple& origin, const Triple& region, std::size_t row_pitch, std::size_t slice_pitch);
// Whether two rectangles of one buffer have a byte in common; OpenCL 3.0, appendix D.
bool overlap(const Triple& from, const Triple& to, const Triple& region, std::size_t row_pitch,
             std::size_t slice_pitch);

// Origin and region within an image, and no extent where the image has no dimension.
bool is_within(const ImageFacts& image, const Triple& origin, const Triple& region);

}  // namespace grus::api
