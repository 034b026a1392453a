// The checks that many entry points share, with the specification's error codes.
#pragma once

#include "command/enqueue.hpp"

namespace grus::api {

// The object behind a handle of the program's; null if there is none.
template <typename T>
T* live(const void* handle) {
  return slab<T>().live(handle);
}

template <typename T>
cl_int retain(const void* handle, cl_int invalid) {
  T* object = live<T>(handle);
  if (!object) return invalid;
  object->program_retain();
  return CL_SUCCESS;
}

template <typename T>
cl_int release_handle(const void* handle, cl_int invalid) {
  T* object = live<T>(handle);
  return object && program_release(object) ? CL_SUCCESS : invalid;
}

inline bool overflows(std::size_t offset, std::size_t size, std::size_t limit) {
  return offset > limit || size > limit - offset;
}

// Markers and barriers wait for everything before them only if their wait list is empty.
inline Order marker_order(cl_uint waits) { return waits == 0 ? Order::all_before : Order::plain; }
inline Order barrier_order(cl_uint waits) { return waits == 0 ? Order::all_before_and_barrier : Order::barrier; }

inline Blocking blocking_of(cl_bool flag) { return flag ? Blocking::yes : Blocking::no; }

}  // namespace grus::api
