// Entry points: mapping and unmapping. Mapped pointers always point into memory that Grus or the program owns. Where
// the object lives in host memory that is its own memory; elsewhere it is a region registered with the vendor, filled
// by a read and emptied by a write.
#include "api/call.hpp"
#include "api/check_memory.hpp"

namespace grus::api {
namespace {

constexpr cl_map_flags kWrites = CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;

cl_int check_map_flags(const Memory& memory, cl_map_flags flags) {
  if (flags & ~(CL_MAP_READ | kWrites)) return CL_INVALID_VALUE;
  if ((flags & CL_MAP_WRITE_INVALIDATE_REGION) && (flags & (CL_MAP_READ | CL_MAP_WRITE))) return CL_INVALID_VALUE;
  if ((flags & CL_MAP_READ) && (memory.flags & (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)))
    return CL_INVALID_OPERATION;
  if ((flags & kWrites) && (memory.flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)))
    return CL_INVALID_OPERATION;
  return CL_SUCCESS;
}

bool is_free_for(const Region& region, const Queue& queue) {
  if (region.last_queue) return region.last_queue == queue.id();
  if (!region.last_use || region.last_use->place() == Event::Place::finished) return true;
  if (region.last_use->place() == Event::Place::above) return false;
  const auto status = executor_of(queue).event_status(region.last_use->id());
  return status && *status <= CL_COMPLETE;
}

// A region that no command uses any more: one of the object's earlier ones, or a new one, registered with the vendor.
Result<Region> take_region(Memory& memory, const Queue& queue, std::size_t size) {
  Executor& executor = executor_of(*memory.context);
  {
    const std::lock_guard lock{memory.lock};
    for (auto region = memory.regions.begin(); region != memory.regions.end(); ++region) {
      if (region->memory->size < size || !is_free_for(*region, queue)) continue;
      Region found = std::move(*region);
      memory.regions.erase(region);
      return found;
    }
  }
  Region region;
  region.memory = Ref<Memory>::adopt(slab<Memory>().create(*memory.context, CL_MEM_OBJECT_BUFFER));
  Memory& registered = *region.memory;
  registered.size = size;
  registered.host_memory = std::make_shared<HostMemory>(size);
  registered.host = registered.host_memory->data();
  NewBuffer order;
  order.id = registered.id();
  order.context = memory.context->id();
  order.size = size;
  order.host = registered.host;
  order.host_memory = registered.host_memory;
  if (const cl_int code = executor.create_buffer(order); code != CL_SUCCESS) return Failure{code};
  registered.created = true;
  return region;
}

Result<void*> map_by_copy(Memory& memory, Mapping mapping, std::size_t size, const Enqueue& how) {
  auto region = take_region(memory, how.queue, size);
  if (!region) return Failure{region.error() == CL_OUT_OF_RESOURCES ? CL_OUT_OF_RESOURCES : CL_MAP_FAILURE};
  mapping.pointer = region->memory->host;
  mapping.staging = std::move(*region);
  cl_int code;
  if (mapping.flags & CL_MAP_WRITE_INVALIDATE_REGION) {
    code = enqueue(command::Marker{},
                   {how.queue, how.waits, how.event_out, how.type, Blocking::no, marker_order(how.waits)});
    if (code == CL_SUCCESS && how.blocking == Blocking::yes)
      code = api::clFinish(reinterpret_cast<cl_command_queue>(&how.queue));
  } else if (memory.is_image()) {
    code = enqueue(
        command::ReadImage{
            {memory.id()}, {mapping.origin, mapping.region}, mapping.row_pitch, mapping.slice_pitch, mapping.pointer},
        how);
  } else {
    code = enqueue(command::Read{{memory.id()}, mapping.range, mapping.pointer}, how);
  }
  if (code != CL_SUCCESS) return Failure{code};
  void* pointer = mapping.pointer;
  memory.add_mapping(std::move(mapping));
  return pointer;
}

cl_int write_back(Memory& memory, const Mapping& mapping, const Enqueue& how) {
  if (memory.is_image()) {
    return enqueue(
        command::WriteImage{
            {memory.id()}, {mapping.origin, mapping.region}, mapping.row_pitch, mapping.slice_pitch, mapping.pointer},
        how);
  }
  return enqueue(command::Write{{memory.id()}, mapping.range, mapping.pointer}, how);
}

cl_int unmap_by_copy(Memory& memory, Mapping& mapping, const Enqueue& how) {
  Region& region = mapping.staging;
  region.last_queue = {};
  region.last_use = {};
  cl_event done = nullptr;
  cl_int code;
  if (!(mapping.flags & kWrites)) {
    code = enqueue(command::Marker{}, how);
  } else if (how.queue.in_order()) {
    code = write_back(memory, mapping, how);
    region.last_queue = how.queue.id();
  } else {  // its event is needed, even if the program wants none
    code = write_back(memory, mapping, {how.queue, how.waits, &done, how.type});
  }
  if (code != CL_SUCCESS) return code;
  if (done) {
    region.last_use = Ref{live<Event>(done)};
    if (how.event_out) {
      *how.event_out = done;
    } else {
      program_release(region.last_use.get());
    }
  }
  const std::lock_guard lock{memory.lock};
  memory.regions.push_back(std::move(region));
  return CL_SUCCESS;
}

}  // namespace

Result<void*> clEnqueueMapBuffer(cl_command_queue queue_handle, cl_mem handle, cl_bool blocking, cl_map_flags flags,
                                 std::size_t offset, std::size_t size, cl_uint wait_count, const cl_event* wait_handles,
                                 cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return Failure{CL_INVALID_COMMAND_QUEUE};
  Memory* buffer = live<Memory>(handle);
  if (const cl_int code = check_buffer(*queue, buffer, Access::device_only); code != CL_SUCCESS) return Failure{code};
  if (size == 0 || overflows(offset, size, buffer->size)) return Failure{CL_INVALID_VALUE};
  if (const cl_int code = check_map_flags(*buffer, flags); code != CL_SUCCESS) return Failure{code};
  WaitList waits;
  if (const cl_int code = waits.check(*queue->context, wait_count, wait_handles); code != CL_SUCCESS)
    return Failure{code};
  Mapping mapping;
  mapping.flags = flags;
  mapping.range = {offset, size};
  const Enqueue how{*queue, waits.events(), event_out, CL_COMMAND_MAP_BUFFER, blocking_of(blocking)};
  if (!buffer->host) return map_by_copy(*buffer, std::move(mapping), size, how);
  mapping.pointer = buffer->host + offset;
  void* pointer = mapping.pointer;
  if (const cl_int code = enqueue(command::MapBuffer{{buffer->id()}, flags, {offset, size}, pointer}, how);
      code != CL_SUCCESS)
    return Failure{code};
  buffer->add_mapping(std::move(mapping));
  return pointer;
}

Result<void*> clEnqueueMapImage(cl_command_queue queue_handle, cl_mem handle, cl_bool blocking, cl_map_flags flags,
                                const std::size_t* origin, const std::size_t* region, std::size_t* row_pitch_out,
                                std::size_t* slice_pitch_out, cl_uint wait_count, const cl_event* wait_handles,
                                cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return Failure{CL_INVALID_COMMAND_QUEUE};
  Memory* image = live<Memory>(handle);
  if (const cl_int code = check_image(*queue, image, Access::device_only); code != CL_SUCCESS) return Failure{code};
  const ImageFacts& facts = *image->image;
  if (!origin || !region || !row_pitch_out || !is_within(facts, triple(origin), triple(region)))
    return Failure{CL_INVALID_VALUE};
  const bool has_slices = image->type == CL_MEM_OBJECT_IMAGE3D || image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ||
                          image->type == CL_MEM_OBJECT_IMAGE2D_ARRAY;
  if (has_slices && !slice_pitch_out) return Failure{CL_INVALID_VALUE};
  if (const cl_int code = check_map_flags(*image, flags); code != CL_SUCCESS) return Failure{code};
  WaitList waits;
  if (const cl_int code = waits.check(*queue->context, wait_count, wait_handles); code != CL_SUCCESS)
    return Failure{code};
  Mapping mapping;
  mapping.flags = flags;
  mapping.origin = triple(origin);
  mapping.region = triple(region);
  const Enqueue how{*queue, waits.events(), event_out, CL_COMMAND_MAP_IMAGE, blocking_of(blocking)};
  void* pointer = nullptr;
  if (image->host) {
    mapping.row_pitch = facts.row_pitch;
    mapping.slice_pitch = facts.slice_pitch;
    const bool array_1d = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    mapping.pointer = image->host + origin[0] * facts.element_size +
                      origin[1] * (array_1d ? facts.slice_pitch : facts.row_pitch) + origin[2] * facts.slice_pitch;
    pointer = mapping.pointer;
    const cl_int code =
        enqueue(command::MapImage{{image->id()}, flags, {mapping.origin, mapping.region}, pointer}, how);
    if (code != CL_SUCCESS) return Failure{code};
    *row_pitch_out = mapping.row_pitch;
    if (slice_pitch_out) *slice_pitch_out = has_slices ? mapping.slice_pitch : 0;
    image->add_mapping(std::move(mapping));
    return pointer;
  }
  mapping.row_pitch = region[0] * facts.element_size;
  mapping.slice_pitch = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? mapping.row_pitch
                        : has_slices                               ? mapping.row_pitch * region[1]
                                                                   : 0;
  *row_pitch_out = mapping.row_pitch;
  if (slice_pitch_out) *slice_pitch_out = mapping.slice_pitch;
  return map_by_copy(*image, mapping, mapping.row_pitch * region[1] * region[2], how);
}

cl_int clEnqueueUnmapMemObject(cl_command_queue queue_handle, cl_mem handle, void* pointer, cl_uint wait_count,
                               const cl_event* wait_handles, cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* memory = live<Memory>(handle);
  if (!memory) return CL_INVALID_MEM_OBJECT;
  if (memory->context.get() != queue->context.get()) return CL_INVALID_CONTEXT;
  WaitList waits;
  if (const cl_int code = waits.check(*queue->context, wait_count, wait_handles); code != CL_SUCCESS) return code;
  auto mapping = memory->take_mapping(pointer);
  if (!mapping) return CL_INVALID_VALUE;
  const Enqueue how{*queue, waits.events(), event_out, CL_COMMAND_UNMAP_MEM_OBJECT};
  const cl_int code = mapping->staging.memory ? unmap_by_copy(*memory, *mapping, how)
                                              : enqueue(command::Unmap{{memory->id()}, pointer}, how);
  if (code != CL_SUCCESS) memory->add_mapping(std::move(*mapping));
  return code;
}

}  // namespace grus::api
