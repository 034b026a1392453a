// The objects behind the driver's handles. Each starts with the table of functions, as ICD loaders want it.
#pragma once

#include <CL/cl_icd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "table.hpp"

namespace fake {

struct Object {
  const cl_icd_dispatch* dispatch = &table();
  std::atomic<cl_uint> references{1};
};

template <typename T>
cl_int retain(T* object, cl_int invalid) {
  if (!object) return invalid;
  ++object->references;
  return CL_SUCCESS;
}

template <typename T>
cl_int release(T* object, cl_int invalid) {
  if (!object) return invalid;
  if (--object->references == 0) delete object;
  return CL_SUCCESS;
}

template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_{object} { retain(object_, 0); }
  Ref(const Ref& other) : Ref{other.object_} {}
  Ref(Ref&& other) noexcept : object_{std::exchange(other.object_, nullptr)} {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { release(object_, 0); }
  T* get() const { return object_; }
  T* operator->() const { return object_; }

 private:
  T* object_ = nullptr;
};

struct ArgumentFacts {
  cl_kernel_arg_address_qualifier address = CL_KERNEL_ARG_ADDRESS_PRIVATE;
  std::string type;
  std::string name;
};

struct KernelFacts {
  std::string name;
  std::vector<ArgumentFacts> arguments;
};

}  // namespace fake

struct _cl_platform_id : fake::Object {};
struct _cl_device_id : fake::Object {};

struct _cl_context : fake::Object {
  explicit _cl_context(int place);
  ~_cl_context();
  const int place;  // a socket, if there are only so many places
};

struct _cl_command_queue : fake::Object {
  fake::Ref<_cl_context> context;
  cl_command_queue_properties properties = 0;
  std::size_t unfinished = 0;  // commands; guarded by the worker
};

struct _cl_mem : fake::Object {
  ~_cl_mem();
  fake::Ref<_cl_context> context;
  fake::Ref<_cl_mem> parent;  // of a sub-buffer
  cl_mem_flags flags = 0;
  std::size_t size = 0;
  std::vector<std::byte> own;
  std::byte* bytes = nullptr;  // its own, its parent's or the program's
  std::vector<std::function<void()>> when_gone;
};

struct _cl_program : fake::Object {
  fake::Ref<_cl_context> context;
  std::string source;
  cl_build_status status = CL_BUILD_NONE;
  std::string options;
  std::vector<fake::KernelFacts> kernels;
};

struct _cl_kernel : fake::Object {
  fake::Ref<_cl_program> program;
  fake::KernelFacts facts;
  std::vector<fake::Ref<_cl_mem>> memory;  // for each argument, if it is one
};

struct _cl_event : fake::Object {
  struct Callback {
    cl_int status;
    std::function<void(cl_event, cl_int)> call;
  };
  fake::Ref<_cl_context> context;
  fake::Ref<_cl_command_queue> queue;
  cl_command_type type = 0;
  cl_int status = CL_QUEUED;        // this and what follows: guarded by the worker
  std::array<cl_ulong, 4> times{};  // queued, submitted, started, ended
  std::vector<Callback> callbacks;
};
