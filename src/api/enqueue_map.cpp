// Entry points: mapping and unmapping. Mapped pointers always point into memory that Grus or the program owns. Where
// the object lives in host memory that is its own memory; elsewhere it is a region registered with the vendor, filled
// by a read and emptied by a write. The program's own memory is such a region once the object has moved away from it.
#include "api/call.hpp"
#include "api/check_memory.hpp"

namespace grus::api {
namespace {

constexpr std::size_t kRegionsLeftToOthers = 4;
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

// Whether it may go: what a queue does later isn't all that may still read it, and nobody else keeps it until then.
bool may_be_dropped(const Region& region, const Queue& queue) {
  if (!region.memory) return true;
  return (!region.last_queue || !region.memory->host_memory) && is_free_for(region, queue);
}

// Host memory that is registered with the vendor.
Result<Ref<Memory>> make_region(const Memory& memory, std::size_t size) {
  auto region = Ref<Memory>::adopt(slab<Memory>().create(*memory.context, CL_MEM_OBJECT_BUFFER));
  region->is_region = true;
  region->size = size;
  auto home = executor_of(*memory.context).host_memory_for(memory.context->shares_host_memory(), size);
  region->take_host_memory(home ? std::move(home) : memory_in_pages(size));
  NewBuffer order;
  order.id = region->id();
  order.context = memory.context->id();
  order.size = size;
  order.host = region->host;
  order.host_memory = region->host_memory;
  order.is_region = true;
  const cl_int code = executor_of(*memory.context).create_buffer(order);
  if (code != CL_SUCCESS) return Failure{code == CL_OUT_OF_RESOURCES ? code : CL_MAP_FAILURE};
  region->created = true;
  return region;
}

// The program's own memory, which only stands for the object while that is mapped.
Ref<Memory> stand_in(const Memory& memory, std::byte* start) {
  auto region = Ref<Memory>::adopt(slab<Memory>().create(*memory.context, CL_MEM_OBJECT_BUFFER));
  region->is_region = true;
  region->host = start;
  return region;
}

cl_int read_into_region(Memory& memory, const Mapping& mapping, const Enqueue& how) {
  std::byte* const to = mapping.staging.memory->host;
  if (mapping.flags & CL_MAP_WRITE_INVALIDATE_REGION) {
    if (how.blocking == Blocking::no) return enqueue(command::Marker{}, how);
    cl_event done = nullptr;
    cl_int code = enqueue(command::Marker{}, {how.queue, how.waits, &done, how.type});
    if (code != CL_SUCCESS) return code;
    Event* const event = live<Event>(done);
    code = wait_for({&event, 1});
    if (code == CL_SUCCESS && how.event_out) {
      *how.event_out = done;
    } else {
      program_release(event);
    }
    return code;
  }
  if (memory.is_image()) {
    return enqueue(
        command::ReadImage{{memory.id()}, {mapping.origin, mapping.region}, mapping.row_pitch, mapping.slice_pitch, to},
        how);
  }
  return enqueue(command::Read{{memory.id()}, mapping.range, to, true}, how);
}

cl_int write_back(Memory& memory, const Mapping& mapping, const Enqueue& how) {
  const std::byte* const from = mapping.staging.memory->host;
  if (memory.is_image()) {
    return enqueue(
        command::WriteImage{
            {memory.id()}, {mapping.origin, mapping.region}, mapping.row_pitch, mapping.slice_pitch, from},
        how);
  }
  return enqueue(command::Write{{memory.id()}, mapping.range, from}, how);
}

// A record whose region, if mappings are copies, is there and no command's.
Result<Mapping*> take_mapping(Memory& memory, const Queue& queue, std::size_t size, std::size_t place) {
  if (memory.host || memory.host_ptr) {
    // One that was a copy, when the object lived elsewhere, may still be in use.
    Mapping& mapping = memory.take_mapping([&](const Mapping& free) { return may_be_dropped(free.staging, queue); });
    mapping.staging = {};
    if (!memory.host) mapping.staging.memory = stand_in(memory, static_cast<std::byte*>(memory.host_ptr) + place);
    return &mapping;
  }
  std::size_t others = 0;
  ObjectId waited_for;
  Mapping& mapping = memory.take_mapping([&](Mapping& free) {
    Region& region = free.staging;
    if (!region.memory) return true;
    if (region.memory->size < size) return false;
    if (is_free_for(region, queue)) return true;
    // Last used on other queues. A few are left to them; then one is taken, once that queue has done its work.
    if (++others < kRegionsLeftToOthers || !region.last_queue) return false;
    waited_for = region.last_queue;
    return true;
  });
  if (waited_for) {
    const Pin pin{executor_of(queue)};
    const Gate::Leave leave{Gate::Place::waiting};
    pin->finish(waited_for);
  }
  if (!mapping.staging.memory) {
    auto region = make_region(memory, size);
    if (!region) {
      mapping.is_free.store(true, std::memory_order_release);
      return Failure{region.error()};
    }
    mapping.staging.memory = std::move(*region);
  }
  return &mapping;
}

// The session may move while the call waits, and must know then that the pointer is to stay.
template <typename Map>
Result<void*> map(Memory& memory, Mapping& mapping, std::byte* in_host_memory, const Map& in_place,
                  const Enqueue& how) {
  std::byte* const pointer = mapping.staging.memory ? mapping.staging.memory->host : in_host_memory;
  memory.set_mapped(mapping, pointer);
  const cl_int code = mapping.staging.memory ? read_into_region(memory, mapping, how) : enqueue(in_place(pointer), how);
  if (code == CL_SUCCESS) return pointer;
  memory.take_back(mapping);
  return Failure{code};
}

cl_int unmap_by_copy(Memory& memory, Mapping& mapping, const Enqueue& how) {
  const auto send = [&](const Enqueue& placed) {
    return mapping.flags & kWrites ? write_back(memory, mapping, placed) : enqueue(command::Marker{}, placed);
  };
  Region& region = mapping.staging;
  region.last_use = {};
  const bool may_be_dropped_later = !region.memory->created && region.memory->host_memory;
  if (how.queue.in_order() && !may_be_dropped_later) {
    region.last_queue = how.queue.id();
    return send(how);
  }
  region.last_queue = {};
  cl_event done = nullptr;  // needed even if the program wants none
  if (const cl_int code = send({how.queue, how.waits, &done, how.type}); code != CL_SUCCESS) return code;
  region.last_use = Ref{live<Event>(done)};
  if (how.event_out) {
    *how.event_out = done;
  } else {
    program_release(region.last_use.get());
  }
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
  const Ref<Memory> alive{buffer};  // while this waits outside the gate
  if (size == 0 || overflows(offset, size, buffer->size)) return Failure{CL_INVALID_VALUE};
  if (const cl_int code = check_map_flags(*buffer, flags); code != CL_SUCCESS) return Failure{code};
  const auto taken = take_mapping(*buffer, *queue, size, offset);
  if (!taken) return Failure{taken.error()};
  Mapping& mapping = **taken;
  mapping.flags = flags;
  mapping.range = {offset, size};
  const Enqueue how{*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_MAP_BUFFER, blocking_of(blocking)};
  const auto in_place = [&](void* pointer) {
    return command::MapBuffer{{buffer->id()}, flags, {offset, size}, pointer};
  };
  return map(*buffer, mapping, buffer->host ? buffer->host + offset : nullptr, in_place, how);
}

Result<void*> clEnqueueMapImage(cl_command_queue queue_handle, cl_mem handle, cl_bool blocking, cl_map_flags flags,
                                const std::size_t* origin, const std::size_t* region, std::size_t* row_pitch_out,
                                std::size_t* slice_pitch_out, cl_uint wait_count, const cl_event* wait_handles,
                                cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return Failure{CL_INVALID_COMMAND_QUEUE};
  Memory* image = live<Memory>(handle);
  if (const cl_int code = check_image(*queue, image, Access::device_only); code != CL_SUCCESS) return Failure{code};
  const Ref<Memory> alive{image};  // while this waits outside the gate
  const ImageFacts& facts = *image->image;
  if (!origin || !region || !row_pitch_out || !is_within(facts, triple(origin), triple(region)))
    return Failure{CL_INVALID_VALUE};
  const bool has_slices = image->type == CL_MEM_OBJECT_IMAGE3D || image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ||
                          image->type == CL_MEM_OBJECT_IMAGE2D_ARRAY;
  if (has_slices && !slice_pitch_out) return Failure{CL_INVALID_VALUE};
  if (const cl_int code = check_map_flags(*image, flags); code != CL_SUCCESS) return Failure{code};
  const bool array_1d = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
  const bool is_packed = !image->host && !image->host_ptr;  // a copy
  const std::size_t row = region[0] * facts.element_size;
  const std::size_t row_pitch = is_packed ? row : facts.row_pitch;
  const std::size_t slice_pitch = !is_packed ? facts.slice_pitch : array_1d ? row : row * region[1];
  const std::size_t place =
      origin[0] * facts.element_size + origin[1] * (array_1d ? slice_pitch : row_pitch) + origin[2] * slice_pitch;
  const auto taken = take_mapping(*image, *queue, row * region[1] * region[2], place);
  if (!taken) return Failure{taken.error()};
  Mapping& mapping = **taken;
  mapping.flags = flags;
  mapping.origin = triple(origin);
  mapping.region = triple(region);
  mapping.row_pitch = row_pitch;
  mapping.slice_pitch = has_slices ? slice_pitch : 0;
  const Enqueue how{*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_MAP_IMAGE, blocking_of(blocking)};
  *row_pitch_out = row_pitch;
  if (slice_pitch_out) *slice_pitch_out = mapping.slice_pitch;
  const auto in_place = [&](void* pointer) {
    return command::MapImage{{image->id()},      flags, {mapping.origin, mapping.region}, pointer, mapping.row_pitch,
                             mapping.slice_pitch};
  };
  return map(*image, mapping, image->host ? image->host + place : nullptr, in_place, how);
}

cl_int clEnqueueUnmapMemObject(cl_command_queue queue_handle, cl_mem handle, void* pointer, cl_uint wait_count,
                               const cl_event* wait_handles, cl_event* event_out) {
  Queue* queue = live<Queue>(queue_handle);
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  Memory* memory = live<Memory>(handle);
  if (!memory) return CL_INVALID_MEM_OBJECT;
  if (memory->context.get() != queue->context.get()) return CL_INVALID_CONTEXT;
  Mapping* mapping = memory->unmap(pointer);
  if (!mapping) return CL_INVALID_VALUE;
  const Enqueue how{*queue, {wait_count, wait_handles}, event_out, CL_COMMAND_UNMAP_MEM_OBJECT};
  const cl_int code = mapping->staging.memory ? unmap_by_copy(*memory, *mapping, how)
                                              : enqueue(command::Unmap{{memory->id()},
                                                                       pointer,
                                                                       mapping->flags,
                                                                       mapping->range,
                                                                       {mapping->origin, mapping->region},
                                                                       mapping->row_pitch,
                                                                       mapping->slice_pitch},
                                                        how);
  if (code == CL_SUCCESS) {
    mapping->is_free.store(true, std::memory_order_release);
  } else {
    memory->set_mapped(*mapping, static_cast<std::byte*>(pointer));
  }
  return code;
}

}  // namespace grus::api
