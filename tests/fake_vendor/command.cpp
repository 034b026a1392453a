// Everything that is enqueued.
#include <cstring>

#include "worker.hpp"

namespace fake {
namespace {

// Where a command stands among the others, as every enqueue call says it.
struct Place {
  cl_command_queue queue;
  cl_uint wait_count;
  const cl_event* waits;
  cl_event* event_out;
};

cl_int enqueue(const Place& place, cl_command_type type, cl_bool blocking, std::function<void()> work) {
  if (!place.queue) return CL_INVALID_COMMAND_QUEUE;
  auto* event = new _cl_event;
  event->context = place.queue->context;
  event->queue = Ref{place.queue};
  event->type = type;
  Command command{Ref{place.queue}, Ref{event}, {}, std::move(work)};
  for (cl_uint next = 0; next < place.wait_count; ++next) command.waits.emplace_back(place.waits[next]);
  worker().enqueue(std::move(command));
  if (blocking) worker().wait_for(*event);
  if (place.event_out) {
    *place.event_out = event;
  } else {
    release(event, CL_INVALID_EVENT);
  }
  return CL_SUCCESS;
}

}  // namespace

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                           void* to, cl_uint wait_count, const cl_event* waits, cl_event* event) {
  return enqueue({queue, wait_count, waits, event}, CL_COMMAND_READ_BUFFER, blocking,
                 [from = Ref{buffer}, offset, size, to] { std::memmove(to, from->bytes + offset, size); });
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                            const void* from, cl_uint wait_count, const cl_event* waits, cl_event* event) {
  return enqueue({queue, wait_count, waits, event}, CL_COMMAND_WRITE_BUFFER, blocking,
                 [to = Ref{buffer}, offset, size, from] { std::memmove(to->bytes + offset, from, size); });
}

cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem source, cl_mem target, size_t source_offset,
                           size_t target_offset, size_t size, cl_uint wait_count, const cl_event* waits,
                           cl_event* event) {
  return enqueue({queue, wait_count, waits, event}, CL_COMMAND_COPY_BUFFER, CL_FALSE,
                 [from = Ref{source}, to = Ref{target}, source_offset, target_offset, size] {
                   std::memmove(to->bytes + target_offset, from->bytes + source_offset, size);
                 });
}

cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void* pattern, size_t pattern_size,
                           size_t offset, size_t size, cl_uint wait_count, const cl_event* waits, cl_event* event) {
  const auto* first = static_cast<const std::byte*>(pattern);
  return enqueue({queue, wait_count, waits, event}, CL_COMMAND_FILL_BUFFER, CL_FALSE,
                 [to = Ref{buffer}, bytes = std::vector(first, first + pattern_size), offset, size] {
                   for (std::size_t at = 0; at < size; ++at) to->bytes[offset + at] = bytes[at % bytes.size()];
                 });
}

void* clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags, size_t offset, size_t,
                         cl_uint wait_count, const cl_event* waits, cl_event* event, cl_int* code) {
  const cl_int done =
      enqueue({queue, wait_count, waits, event}, CL_COMMAND_MAP_BUFFER, blocking, [of = Ref{buffer}] {});
  if (code) *code = done;
  return done == CL_SUCCESS ? buffer->bytes + offset : nullptr;
}

cl_int clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem buffer, void*, cl_uint wait_count, const cl_event* waits,
                               cl_event* event) {
  return enqueue({queue, wait_count, waits, event}, CL_COMMAND_UNMAP_MEM_OBJECT, CL_FALSE, [of = Ref{buffer}] {});
}

cl_int clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint, const cl_mem*, cl_mem_migration_flags,
                                  cl_uint wait_count, const cl_event* waits, cl_event* event) {
  return enqueue({queue, wait_count, waits, event}, CL_COMMAND_MIGRATE_MEM_OBJECTS, CL_FALSE, {});
}

// The kernel `increment` adds 1 to as many integers as there are work items; all others do nothing.
cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t*,
                              const size_t* global, const size_t*, cl_uint wait_count, const cl_event* waits,
                              cl_event* event) {
  if (!kernel) return CL_INVALID_KERNEL;
  std::size_t items = 1;
  for (cl_uint next = 0; next < dimensions; ++next) items *= global[next];
  const auto run = [kept = Ref{kernel}, memory = kernel->memory, items] {
    if (kept->facts.name != "increment" || !memory[0].get()) return;
    auto* const values = reinterpret_cast<cl_int*>(memory[0]->bytes);
    for (std::size_t item = 0; item < items && item < memory[0]->size / sizeof *values; ++item) ++values[item];
  };
  return enqueue({queue, wait_count, waits, event}, CL_COMMAND_NDRANGE_KERNEL, CL_FALSE, run);
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint wait_count, const cl_event* waits, cl_event* event) {
  return enqueue({queue, wait_count, waits, event}, CL_COMMAND_MARKER, CL_FALSE, {});
}

cl_int clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint wait_count, const cl_event* waits,
                                    cl_event* event) {
  return enqueue({queue, wait_count, waits, event}, CL_COMMAND_BARRIER, CL_FALSE, {});
}

}  // namespace fake
