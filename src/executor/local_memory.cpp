// LocalExecutor: buffers, images and samplers, and what happens when objects are freed.
#include <algorithm>

#include "base/log.hpp"
#include "command/callbacks.hpp"
#include "executor/local.hpp"
#include "executor/query.hpp"

namespace grus {
namespace {

cl_mem_flags with_host_pointer(cl_mem_flags flags, const void* host, const void* initial) {
  if (host) return flags | CL_MEM_USE_HOST_PTR;
  return initial ? flags | CL_MEM_COPY_HOST_PTR : flags;
}

}  // namespace

// Asks the vendor to tell when it is done with an object, and keeps host memory until then. Vendors call back in the
// reverse order of asking, as the program's own callbacks must be called.
cl_int LocalExecutor::watch(cl_mem handle, Gone gone) {
  auto owner = std::make_unique<Gone>(std::move(gone));
  const auto on_gone = [](cl_mem, void* data) {
    const std::unique_ptr<Gone> told{static_cast<Gone*>(data)};
    if (told->call) callbacks::post(std::move(told->call));
  };
  const cl_int code = functions(handle).clSetMemObjectDestructorCallback(handle, on_gone, owner.get());
  if (code == CL_SUCCESS) (void)owner.release();  // the callback's now
  return code;
}

cl_int LocalExecutor::add_memory(ObjectId id, const VendorMemory& memory, std::size_t size,
                                 std::shared_ptr<HostMemory> host_memory) {
  if (host_memory && watch(memory.handle, {std::move(host_memory), nullptr}) != CL_SUCCESS) {
    functions(memory.handle).clReleaseMemObject(memory.handle);
    return CL_OUT_OF_HOST_MEMORY;
  }
  memories_.set(id, memory);
  if (memory.pinned) pinned_.add(memory.pinned, size);
  return CL_SUCCESS;
}

cl_int LocalExecutor::create_buffer(const NewBuffer& buffer) {
  const VendorContext& context = context_of(buffer.context);
  const auto& call = functions(context.handle);
  const cl_mem_flags flags = with_host_pointer(buffer.flags, buffer.host, buffer.initial);
  void* pointer = buffer.host ? buffer.host : const_cast<void*>(buffer.initial);
  cl_int code = CL_SUCCESS;
  cl_mem handle = nullptr;
  if (buffer.properties.size() > 1 && context.version >= 300) {
    handle =
        call.clCreateBufferWithProperties(context.handle, buffer.properties.data(), flags, buffer.size, pointer, &code);
  } else {
    handle = call.clCreateBuffer(context.handle, flags, buffer.size, pointer, &code);
  }
  if (!handle) return code;
  return add_memory(buffer.id, {handle, buffer.host, buffer.is_region}, buffer.size, buffer.host_memory);
}

cl_int LocalExecutor::create_sub_buffer(ObjectId id, ObjectId parent, cl_mem_flags flags, Range range) {
  cl_mem whole = memories_[parent].handle;
  const cl_buffer_region region{range.offset, range.size};
  cl_int code = CL_SUCCESS;
  cl_mem handle = functions(whole).clCreateSubBuffer(whole, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  if (!handle) return code;
  return add_memory(id, {handle}, range.size, nullptr);
}

Result<ImageLayout> LocalExecutor::create_image(const NewImage& image) {
  const VendorContext& context = context_of(image.context);
  const auto& call = functions(context.handle);
  const cl_mem_flags flags = with_host_pointer(image.flags, image.host, image.initial);
  void* pointer = image.host ? image.host : const_cast<void*>(image.initial);
  cl_image_desc desc = image.desc;
  desc.mem_object = image.from ? memories_[image.from].handle : nullptr;
  cl_int code = CL_SUCCESS;
  cl_mem handle = nullptr;
  if (image.properties.size() > 1 && context.version >= 300) {
    handle = call.clCreateImageWithProperties(context.handle, image.properties.data(), flags, &image.format, &desc,
                                              pointer, &code);
  } else {
    handle = call.clCreateImage(context.handle, flags, &image.format, &desc, pointer, &code);
  }
  if (!handle) return Failure{code};
  ImageLayout layout;
  call.clGetImageInfo(handle, CL_IMAGE_ELEMENT_SIZE, sizeof(std::size_t), &layout.element_size, nullptr);
  call.clGetImageInfo(handle, CL_IMAGE_ROW_PITCH, sizeof(std::size_t), &layout.row_pitch, nullptr);
  call.clGetImageInfo(handle, CL_IMAGE_SLICE_PITCH, sizeof(std::size_t), &layout.slice_pitch, nullptr);
  call.clGetMemObjectInfo(handle, CL_MEM_SIZE, sizeof(std::size_t), &layout.size, nullptr);
  if (const cl_int failed = add_memory(image.id, {handle, image.host}, layout.size, image.host_memory);
      failed != CL_SUCCESS)
    return Failure{failed};
  return layout;
}

cl_int LocalExecutor::create_sampler(const NewSampler& sampler) {
  const VendorContext& context = context_of(sampler.context);
  const auto& call = functions(context.handle);
  cl_int code = CL_SUCCESS;
  cl_sampler handle = nullptr;
  if (sampler.properties.size() > 1 && context.version >= 200) {
    handle = call.clCreateSamplerWithProperties(context.handle, sampler.properties.data(), &code);
  } else {
    handle = call.clCreateSampler(context.handle, sampler.normalized, sampler.addressing, sampler.filter, &code);
  }
  if (!handle) return code;
  samplers_.set(sampler.id, handle);
  return CL_SUCCESS;
}

Result<Bytes> LocalExecutor::supported_formats(ObjectId id, cl_mem_flags flags, cl_mem_object_type type) {
  cl_context context = context_of(id).handle;
  const auto function = functions(context).clGetSupportedImageFormats;
  cl_uint count = 0;
  if (const cl_int code = function(context, flags, type, 0, nullptr, &count); code != CL_SUCCESS) return Failure{code};
  Bytes bytes(count * sizeof(cl_image_format));
  if (count != 0) function(context, flags, type, count, reinterpret_cast<cl_image_format*>(bytes.data()), nullptr);
  return bytes;
}

void LocalExecutor::when_memory_is_gone(ObjectId id, std::function<void()> call) {
  if (watch(memories_[id].handle, {nullptr, std::move(call)}) != CL_SUCCESS)
    log::warn("memory", "the vendor takes no destructor callback; the program's won't be called");
}

void LocalExecutor::free_memory(const VendorMemory& memory) {
  if (memory.pinned) pinned_.remove(memory.pinned);
  const auto release = [handle = memory.handle] { functions(handle).clReleaseMemObject(handle); };
  if (!memory.is_region) return release();
  when_idle(Whose::all, [release] { callbacks::post(release); });
}

void LocalExecutor::free(ObjectType type, ObjectId id) noexcept {
  switch (type) {
    case ObjectType::device: {
      cl_device_id device = devices_.take(id);
      functions(device).clReleaseDevice(device);
      return;
    }
    case ObjectType::context: {
      const std::unique_ptr<std::shared_ptr<VendorContext>> owner{contexts_.take(id)};
      cl_context context = (*owner)->handle;
      functions(context).clReleaseContext(context);
      return;
    }
    case ObjectType::queue: {
      std::unique_ptr<VendorQueue> queue{queues_.take(id)};
      queue->staging.reset();
      free_queue(std::move(queue));
      return;
    }
    case ObjectType::memory:
      free_memory(memories_.take(id));
      return;
    case ObjectType::sampler: {
      cl_sampler sampler = samplers_.take(id);
      functions(sampler).clReleaseSampler(sampler);
      return;
    }
    case ObjectType::program: {
      cl_program program = programs_.take(id);
      if (program) functions(program).clReleaseProgram(program);
      const std::lock_guard lock{splits_mutex_};
      splits_.erase(id.value());
      return;
    }
    case ObjectType::kernel: {
      const std::unique_ptr<VendorKernel> kernel{kernels_.take(id)};
      functions(kernel->handle).clReleaseKernel(kernel->handle);
      return;
    }
    case ObjectType::event: {
      const VendorEvent event = events_.take(id);
      if (event.first) functions(event.first).clReleaseEvent(event.first);
      if (event.last) functions(event.last).clReleaseEvent(event.last);
      return;
    }
  }
}

}  // namespace grus
