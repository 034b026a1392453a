// The two calls that every clGet*Info answer takes: its size, then its bytes.
#pragma once

#include "objects/facts.hpp"

namespace grus {

// call(size, pointer, size_ret) is the vendor's query with everything else filled in.
template <typename Call>
Result<Bytes> ask(Call call) {
  std::size_t size = 0;
  const auto no_room = static_cast<void*>(nullptr);
  const auto no_size = static_cast<std::size_t*>(nullptr);
  if (const cl_int code = call(std::size_t{0}, no_room, &size); code != CL_SUCCESS) return Failure{code};
  Bytes bytes(size);
  if (size == 0) return bytes;
  if (const cl_int code = call(size, static_cast<void*>(bytes.data()), no_size); code != CL_SUCCESS)
    return Failure{code};
  return bytes;
}

}  // namespace grus
