// How every clGet*Info call answers.
#pragma once

#include <CL/cl.h>

#include <cstring>
#include <string>

namespace fake {

struct Room {
  std::size_t size;
  void* value;
  std::size_t* size_out;
};

inline cl_int answer_bytes(const Room& room, const void* bytes, std::size_t size) {
  if (room.value && room.size < size) return CL_INVALID_VALUE;
  if (room.value) std::memcpy(room.value, bytes, size);
  if (room.size_out) *room.size_out = size;
  return CL_SUCCESS;
}

template <typename T>
cl_int answer(const Room& room, const T& value) {
  return answer_bytes(room, &value, sizeof value);
}

inline cl_int answer(const Room& room, const std::string& text) {
  return answer_bytes(room, text.c_str(), text.size() + 1);
}

}  // namespace fake
