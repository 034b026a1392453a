// What the specification says about cl_mem_flags.
#pragma once

#include <CL/cl.h>

#include <bit>

#include "objects/memory.hpp"

namespace grus::api {

inline constexpr cl_mem_flags kHostAccess = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
inline constexpr cl_mem_flags kHostPointer = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;

inline bool at_most_one(cl_mem_flags flags) { return std::popcount(flags) <= 1; }

inline bool are_valid_flags(cl_mem_flags flags) {
  if (flags & ~(kDeviceAccess | kHostAccess | kHostPointer | CL_MEM_KERNEL_READ_AND_WRITE)) return false;
  if (!at_most_one(flags & kDeviceAccess) || !at_most_one(flags & kHostAccess)) return false;
  return !(flags & CL_MEM_USE_HOST_PTR) || !(flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR));
}

// A host pointer goes with exactly the flags that say what to do with it.
inline bool fits_host_pointer(cl_mem_flags flags, const void* host_ptr) {
  return (host_ptr != nullptr) == ((flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0);
}

// The flags of an object made from another: what it doesn't say it inherits. False if it asks for more than there is.
inline bool inherit_flags(cl_mem_flags parent, cl_mem_flags& flags) {
  if (flags & kHostPointer) return false;
  if ((parent & CL_MEM_WRITE_ONLY) && (flags & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY))) return false;
  if ((parent & CL_MEM_READ_ONLY) && (flags & (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY))) return false;
  if ((parent & CL_MEM_HOST_WRITE_ONLY) && (flags & CL_MEM_HOST_READ_ONLY)) return false;
  if ((parent & CL_MEM_HOST_READ_ONLY) && (flags & CL_MEM_HOST_WRITE_ONLY)) return false;
  if ((parent & CL_MEM_HOST_NO_ACCESS) && (flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY))) return false;
  if (!(flags & kDeviceAccess)) flags |= parent & kDeviceAccess;
  if (!(flags & kHostAccess)) flags |= parent & kHostAccess;
  flags |= parent & kHostPointer;
  return true;
}

}  // namespace grus::api
