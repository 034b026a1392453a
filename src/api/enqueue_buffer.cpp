// Entry points: commands on buffers.
#include <bit>

#include "api/check_memory.hpp"
#include "api/entry_point.hpp"

namespace grus::api {
namespace {

// What a read and a write of a rectangle have to check alike.
cl_int check_rectangle(const Memory& buffer, command::Rectangle& rectangle) {
  if (!complete_pitches(rectangle.region, rectangle.buffer_row_pitch, rectangle.buffer_slice_pitch) ||
      !complete_pitches(rectangle.region, rectangle.host_row_pitch, rectangle.host_slice_pitch)) {
    return CL_INVALID_VALUE;
  }
  const std::size_t end =
      end_of(rectangle.buffer_origin, rectangle.region, rectangle.buffer_row_pitch, rectangle.buffer_slice_pitch);
  const std::size_t host_end =
      end_of(rectangle.host_origin, rectangle.region, rectangle.host_row_pitch, rectangle.host_slice_pitch);
  return end > buffer.size || host_end == SIZE_MAX ? CL_INVALID_VALUE : CL_SUCCESS;
}

}  // namespace

cl_int clEnqueueReadBuffer(cl_command_queue queue_handle, cl_mem handle, cl_bool blocking, std::size_t offset,
                           std::size_t size, void* to, cl_uint wait_count, const cl_event* wait_handles,
                           cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* buffer = live<Memory>(handle);
  if (const cl_int code = check_buffer(*queue, buffer, Access::host_reads); code != CL_SUCCESS) return code;
  if (!to || overflows(offset, size, buffer->size)) return CL_INVALID_VALUE;
  return enqueue(command::Read{{buffer->id()}, {offset, size}, to},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_READ_BUFFER, blocking_of(blocking)});
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue_handle, cl_mem handle, cl_bool blocking, std::size_t offset,
                            std::size_t size, const void* from, cl_uint wait_count, const cl_event* wait_handles,
                            cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* buffer = live<Memory>(handle);
  if (const cl_int code = check_buffer(*queue, buffer, Access::host_writes); code != CL_SUCCESS) return code;
  if (!from || overflows(offset, size, buffer->size)) return CL_INVALID_VALUE;
  return enqueue(command::Write{{buffer->id()}, {offset, size}, from},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_WRITE_BUFFER, blocking_of(blocking)});
}

cl_int clEnqueueReadBufferRect(cl_command_queue queue_handle, cl_mem handle, cl_bool blocking,
                               const std::size_t* buffer_origin, const std::size_t* host_origin,
                               const std::size_t* region, std::size_t buffer_row_pitch, std::size_t buffer_slice_pitch,
                               std::size_t host_row_pitch, std::size_t host_slice_pitch, void* to, cl_uint wait_count,
                               const cl_event* wait_handles, cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* buffer = live<Memory>(handle);
  if (const cl_int code = check_buffer(*queue, buffer, Access::host_reads); code != CL_SUCCESS) return code;
  if (!to || !buffer_origin || !host_origin || !region) return CL_INVALID_VALUE;
  command::Rectangle rectangle{triple(buffer_origin), triple(host_origin), triple(region),  buffer_row_pitch,
                               buffer_slice_pitch,    host_row_pitch,      host_slice_pitch};
  if (const cl_int code = check_rectangle(*buffer, rectangle); code != CL_SUCCESS) return code;
  return enqueue(command::ReadRectangle{{buffer->id()}, rectangle, to},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_READ_BUFFER_RECT, blocking_of(blocking)});
}

cl_int clEnqueueWriteBufferRect(cl_command_queue queue_handle, cl_mem handle, cl_bool blocking,
                                const std::size_t* buffer_origin, const std::size_t* host_origin,
                                const std::size_t* region, std::size_t buffer_row_pitch, std::size_t buffer_slice_pitch,
                                std::size_t host_row_pitch, std::size_t host_slice_pitch, const void* from,
                                cl_uint wait_count, const cl_event* wait_handles, cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* buffer = live<Memory>(handle);
  if (const cl_int code = check_buffer(*queue, buffer, Access::host_writes); code != CL_SUCCESS) return code;
  if (!from || !buffer_origin || !host_origin || !region) return CL_INVALID_VALUE;
  command::Rectangle rectangle{triple(buffer_origin), triple(host_origin), triple(region),  buffer_row_pitch,
                               buffer_slice_pitch,    host_row_pitch,      host_slice_pitch};
  if (const cl_int code = check_rectangle(*buffer, rectangle); code != CL_SUCCESS) return code;
  return enqueue(command::WriteRectangle{{buffer->id()}, rectangle, from},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_WRITE_BUFFER_RECT, blocking_of(blocking)});
}

cl_int clEnqueueCopyBuffer(cl_command_queue queue_handle, cl_mem from_handle, cl_mem to_handle, std::size_t from_offset,
                           std::size_t to_offset, std::size_t size, cl_uint wait_count, const cl_event* wait_handles,
                           cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* from = live<Memory>(from_handle);
  Memory* to = live<Memory>(to_handle);
  if (const cl_int code = check_buffer(*queue, from, Access::device_only); code != CL_SUCCESS) return code;
  if (const cl_int code = check_buffer(*queue, to, Access::device_only); code != CL_SUCCESS) return code;
  if (overflows(from_offset, size, from->size) || overflows(to_offset, size, to->size)) return CL_INVALID_VALUE;
  if (&from->root() == &to->root()) {  // the same buffer, or sub-buffers of one
    const std::size_t from_start = from->origin + from_offset;
    const std::size_t to_start = to->origin + to_offset;
    if (from_start < to_start + size && to_start < from_start + size) return CL_MEM_COPY_OVERLAP;
  }
  return enqueue(command::Copy{{from->id(), to->id()}, from_offset, to_offset, size},
                 {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_COPY_BUFFER});
}

cl_int clEnqueueCopyBufferRect(cl_command_queue queue_handle, cl_mem from_handle, cl_mem to_handle,
                               const std::size_t* from_origin, const std::size_t* to_origin, const std::size_t* region,
                               std::size_t from_row_pitch, std::size_t from_slice_pitch, std::size_t to_row_pitch,
                               std::size_t to_slice_pitch, cl_uint wait_count, const cl_event* wait_handles,
                               cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* from = live<Memory>(from_handle);
  Memory* to = live<Memory>(to_handle);
  if (const cl_int code = check_buffer(*queue, from, Access::device_only); code != CL_SUCCESS) return code;
  if (const cl_int code = check_buffer(*queue, to, Access::device_only); code != CL_SUCCESS) return code;
  if (!from_origin || !to_origin || !region) return CL_INVALID_VALUE;
  command::CopyRectangle copy{{from->id(), to->id()}, triple(from_origin), triple(to_origin), triple(region),
                              from_row_pitch,         from_slice_pitch,    to_row_pitch,      to_slice_pitch};
  if (!complete_pitches(copy.region, copy.from_row_pitch, copy.from_slice_pitch) ||
      !complete_pitches(copy.region, copy.to_row_pitch, copy.to_slice_pitch) ||
      end_of(copy.from_origin, copy.region, copy.from_row_pitch, copy.from_slice_pitch) > from->size ||
      end_of(copy.to_origin, copy.region, copy.to_row_pitch, copy.to_slice_pitch) > to->size) {
    return CL_INVALID_VALUE;
  }
  if (from == to) {
    if (copy.from_row_pitch != copy.to_row_pitch || copy.from_slice_pitch != copy.to_slice_pitch)
      return CL_INVALID_VALUE;
    if (overlap(copy.from_origin, copy.to_origin, copy.region, copy.from_row_pitch, copy.from_slice_pitch))
      return CL_MEM_COPY_OVERLAP;
  }
  return enqueue(copy, {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_COPY_BUFFER_RECT});
}

cl_int clEnqueueFillBuffer(cl_command_queue queue_handle, cl_mem handle, const void* pattern, std::size_t pattern_size,
                           std::size_t offset, std::size_t size, cl_uint wait_count, const cl_event* wait_handles,
                           cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* buffer = live<Memory>(handle);
  if (const cl_int code = check_buffer(*queue, buffer, Access::device_only); code != CL_SUCCESS) return code;
  command::Fill fill{{buffer->id()}, {offset, size}, {}};
  if (!pattern || !std::has_single_bit(pattern_size) || pattern_size > fill.pattern.bytes.size())
    return CL_INVALID_VALUE;
  if (overflows(offset, size, buffer->size) || offset % pattern_size != 0 || size % pattern_size != 0)
    return CL_INVALID_VALUE;
  std::memcpy(fill.pattern.bytes.data(), pattern, pattern_size);
  fill.pattern.size = pattern_size;
  return enqueue(fill, {*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_FILL_BUFFER});
}

}  // namespace grus::api

namespace grus {

template struct EntryPoint<Call::clEnqueueReadBuffer, &api::clEnqueueReadBuffer,
                           decltype(cl_icd_dispatch::clEnqueueReadBuffer)>;
template struct EntryPoint<Call::clEnqueueWriteBuffer, &api::clEnqueueWriteBuffer,
                           decltype(cl_icd_dispatch::clEnqueueWriteBuffer)>;

}  // namespace grus
