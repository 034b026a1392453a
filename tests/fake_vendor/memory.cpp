// Buffers.
#include <cstdlib>

#include "answer.hpp"
#include "behaviour.hpp"
#include "objects.hpp"

namespace {

std::atomic<long> g_buffers{0};

}  // namespace

_cl_mem::~_cl_mem() {
  for (auto call = when_gone.rbegin(); call != when_gone.rend(); ++call) (*call)();
  if (!parent.get()) --g_buffers;
}

namespace fake {
namespace {

bool is_out_of_memory() {
  const auto most = value_of("buffers");
  return most && g_buffers >= std::atol(most->c_str());
}

}  // namespace

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host, cl_int* code) {
  if (code) *code = is_out_of_memory() ? CL_MEM_OBJECT_ALLOCATION_FAILURE : CL_SUCCESS;
  if (is_out_of_memory()) return nullptr;
  ++g_buffers;
  auto* buffer = new _cl_mem;
  buffer->context = Ref{context};
  buffer->flags = flags;
  buffer->size = size;
  if (flags & CL_MEM_USE_HOST_PTR) {
    buffer->bytes = static_cast<std::byte*>(host);
    return buffer;
  }
  buffer->own.resize(size);
  buffer->bytes = buffer->own.data();
  if (flags & CL_MEM_COPY_HOST_PTR) std::memcpy(buffer->bytes, host, size);
  return buffer;
}

cl_mem clCreateSubBuffer(cl_mem whole, cl_mem_flags flags, cl_buffer_create_type, const void* region, cl_int* code) {
  const auto& part = *static_cast<const cl_buffer_region*>(region);
  const bool fits = part.origin <= whole->size && part.size <= whole->size - part.origin;
  if (code) *code = fits ? CL_SUCCESS : CL_INVALID_VALUE;
  if (!fits) return nullptr;
  auto* buffer = new _cl_mem;
  buffer->context = whole->context;
  buffer->parent = Ref{whole};
  buffer->flags = flags;
  buffer->size = part.size;
  buffer->bytes = whole->bytes + part.origin;
  return buffer;
}

cl_int clRetainMemObject(cl_mem memory) { return retain(memory, CL_INVALID_MEM_OBJECT); }
cl_int clReleaseMemObject(cl_mem memory) { return release(memory, CL_INVALID_MEM_OBJECT); }

cl_int clSetMemObjectDestructorCallback(cl_mem memory, void(CL_CALLBACK* call)(cl_mem, void*), void* data) {
  if (!memory) return CL_INVALID_MEM_OBJECT;
  memory->when_gone.emplace_back([=] { call(memory, data); });
  return CL_SUCCESS;
}

cl_int clGetMemObjectInfo(cl_mem memory, cl_mem_info query, size_t size, void* value, size_t* size_out) {
  if (!memory) return CL_INVALID_MEM_OBJECT;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_MEM_TYPE:
      return answer(room, cl_mem_object_type{CL_MEM_OBJECT_BUFFER});
    case CL_MEM_SIZE:
      return answer(room, memory->size);
    case CL_MEM_FLAGS:
      return answer(room, memory->flags);
    case CL_MEM_REFERENCE_COUNT:
      return answer(room, memory->references.load());
    default:
      return CL_INVALID_VALUE;
  }
}

}  // namespace fake
