// Answering clGet*Info: one place for the rules about room and sizes.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "objects/facts.hpp"

namespace grus::api {

// Where the program wants an answer.
struct Room {
  std::size_t size;
  void* value;
  std::size_t* size_ret;
};

inline cl_int answer_bytes(const Room& room, const void* bytes, std::size_t size) {
  if (room.value) {
    if (room.size < size) return CL_INVALID_VALUE;
    if (size != 0) std::memcpy(room.value, bytes, size);
  }
  if (room.size_ret) *room.size_ret = size;
  return CL_SUCCESS;
}

template <typename T>
cl_int answer(const Room& room, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return answer_bytes(room, &value, sizeof value);
}
inline cl_int answer(const Room& room, const std::string& text) {
  return answer_bytes(room, text.c_str(), text.size() + 1);
}
template <typename T>
cl_int answer(const Room& room, const std::vector<T>& values) {
  return answer_bytes(room, values.data(), values.size() * sizeof(T));
}
inline cl_int answer(const Room& room, const Result<Bytes>& bytes) {
  return bytes ? answer_bytes(room, bytes->data(), bytes->size()) : bytes.error();
}

}  // namespace grus::api
