// Entry points: buffers, and what all memory objects have.
#include <algorithm>

#include "api/answer.hpp"
#include "api/call.hpp"
#include "api/check.hpp"
#include "api/memory_flags.hpp"
#include "command/callbacks.hpp"
#include "objects/borrowed_memory.hpp"

namespace grus::api {
namespace {

// Where a new buffer's bytes are to live: in the program's memory if it says so; in memory that Grus owns where the
// device works on host memory anyway, or where the program asked for host memory; else on the device.
void choose_home(Memory& buffer, void* host_ptr, NewBuffer& order) {
  if (buffer.flags & CL_MEM_USE_HOST_PTR) {
    buffer.host_ptr = host_ptr;
    buffer.host = static_cast<std::byte*>(host_ptr);
  } else if (auto home = home_for(buffer, buffer.size)) {
    buffer.take_host_memory(std::move(home));
    if (host_ptr) std::memcpy(buffer.host, host_ptr, buffer.size);
  } else {
    order.initial = host_ptr;
  }
  order.host = buffer.host;
  order.host_memory = buffer.host_memory;
}

Result<cl_mem> create_buffer(cl_context handle, const cl_mem_properties* properties, cl_mem_flags flags,
                             std::size_t size, void* host_ptr) {
  Context* context = live<Context>(handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  if (properties && *properties != 0) return Failure{CL_INVALID_PROPERTY};  // the core knows none
  if (!are_valid_flags(flags) || (flags & CL_MEM_KERNEL_READ_AND_WRITE)) return Failure{CL_INVALID_VALUE};
  if (size == 0) return Failure{CL_INVALID_BUFFER_SIZE};
  const bool fits = std::any_of(context->devices.begin(), context->devices.end(),
                                [&](const auto& device) { return size <= device->limits.max_allocation; });
  if (!fits) return Failure{CL_INVALID_BUFFER_SIZE};
  if (!fits_host_pointer(flags, host_ptr)) return Failure{CL_INVALID_HOST_PTR};
  auto buffer = Ref<Memory>::adopt(slab<Memory>().create(*context, CL_MEM_OBJECT_BUFFER));
  buffer->flags = flags & kDeviceAccess ? flags : flags | CL_MEM_READ_WRITE;
  buffer->size = size;
  if (properties) buffer->properties = {0};
  NewBuffer order;
  order.id = buffer->id();
  order.context = context->id();
  order.flags = flags & kDeviceAccess;  // what the host may do is checked here; moves and mappings may do all
  order.properties = buffer->properties;
  order.size = size;
  try {
    choose_home(*buffer, host_ptr, order);
  } catch (const std::bad_alloc&) {
    return Failure{CL_MEM_OBJECT_ALLOCATION_FAILURE};
  }
  if (const cl_int code = executor_of(*context).create_buffer(order); code != CL_SUCCESS) return Failure{code};
  buffer->created = true;
  return reinterpret_cast<cl_mem>(buffer.hand_out());
}

}  // namespace

Result<cl_mem> clCreateBuffer(cl_context handle, cl_mem_flags flags, std::size_t size, void* host_ptr) {
  return create_buffer(handle, nullptr, flags, size, host_ptr);
}

Result<cl_mem> clCreateBufferWithProperties(cl_context handle, const cl_mem_properties* properties, cl_mem_flags flags,
                                            std::size_t size, void* host_ptr) {
  return create_buffer(handle, properties, flags, size, host_ptr);
}

Result<cl_mem> clCreateSubBuffer(cl_mem handle, cl_mem_flags flags, cl_buffer_create_type type, const void* info) {
  Memory* parent = live<Memory>(handle);
  if (!parent || parent->type != CL_MEM_OBJECT_BUFFER || parent->parent) return Failure{CL_INVALID_MEM_OBJECT};
  if (!are_valid_flags(flags) || type != CL_BUFFER_CREATE_TYPE_REGION || !info) return Failure{CL_INVALID_VALUE};
  const auto& region = *static_cast<const cl_buffer_region*>(info);
  if (!inherit_flags(parent->flags, flags)) return Failure{CL_INVALID_VALUE};
  if (region.size == 0) return Failure{CL_INVALID_BUFFER_SIZE};
  if (overflows(region.origin, region.size, parent->size)) return Failure{CL_INVALID_VALUE};
  const auto& devices = parent->context->devices;
  if (std::none_of(devices.begin(), devices.end(),
                   [&](const auto& device) { return region.origin % device->limits.base_align_bytes == 0; })) {
    return Failure{CL_MISALIGNED_SUB_BUFFER_OFFSET};
  }
  auto buffer = Ref<Memory>::adopt(slab<Memory>().create(*parent->context, CL_MEM_OBJECT_BUFFER));
  buffer->parent = Ref{parent};
  buffer->origin = region.origin;
  buffer->size = region.size;
  buffer->flags = flags;
  if (parent->host_ptr) buffer->host_ptr = static_cast<std::byte*>(parent->host_ptr) + region.origin;
  if (parent->host) buffer->host = parent->host + region.origin;
  const cl_int code =
      executor_of(*parent->context)
          .create_sub_buffer(buffer->id(), parent->id(), flags & kDeviceAccess, {region.origin, region.size});
  if (code != CL_SUCCESS) return Failure{code};
  buffer->created = true;
  return reinterpret_cast<cl_mem>(buffer.hand_out());
}

cl_int clRetainMemObject(cl_mem handle) { return retain<Memory>(handle, CL_INVALID_MEM_OBJECT); }

cl_int clReleaseMemObject(cl_mem handle) {
  Memory* memory = live<Memory>(handle);
  if (!memory) return CL_INVALID_MEM_OBJECT;
  const bool is_programs = memory->host_ptr != nullptr;
  const ObjectId root = is_programs ? memory->root().id() : ObjectId{};
  if (!program_release(memory)) return CL_INVALID_MEM_OBJECT;
  while (is_programs && BorrowedMemory::is_taken(root)) {
    const Gate::Leave leave{Gate::Place::waiting};
    BorrowedMemory::wait_for(root);
  }
  return CL_SUCCESS;
}

cl_int clGetMemObjectInfo(cl_mem handle, cl_mem_info query, std::size_t size, void* value, std::size_t* size_ret) {
  Memory* memory = live<Memory>(handle);
  if (!memory) return CL_INVALID_MEM_OBJECT;
  const Room room{size, value, size_ret};
  switch (query) {
    case CL_MEM_TYPE:
      return answer(room, memory->type);
    case CL_MEM_FLAGS:
      return answer(room, memory->flags);
    case CL_MEM_SIZE:
      return answer(room, memory->size);
    case CL_MEM_HOST_PTR:
      return answer(room, memory->host_ptr);
    case CL_MEM_MAP_COUNT:
      return answer(room, memory->map_count.load(std::memory_order_relaxed));
    case CL_MEM_REFERENCE_COUNT:
      return answer(room, cl_uint{memory->program_references()});
    case CL_MEM_CONTEXT:
      return answer(room, reinterpret_cast<cl_context>(memory->context.get()));
    case CL_MEM_ASSOCIATED_MEMOBJECT:
      return answer(room, reinterpret_cast<cl_mem>(memory->parent.get()));
    case CL_MEM_OFFSET:
      return answer(room, memory->origin);
    case CL_MEM_USES_SVM_POINTER:
      return answer(room, cl_bool{CL_FALSE});
    case CL_MEM_PROPERTIES:
      return answer(room, memory->properties);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clSetMemObjectDestructorCallback(cl_mem handle, void(CL_CALLBACK* notify)(cl_mem, void*), void* user_data) {
  Memory* memory = live<Memory>(handle);
  if (!memory) return CL_INVALID_MEM_OBJECT;
  if (!notify) return CL_INVALID_VALUE;
  const std::lock_guard lock{memory->lock};
  memory->gone_callbacks.emplace_back([=] { notify(handle, user_data); });
  return CL_SUCCESS;
}

}  // namespace grus::api
