// What a function that can fail returns: a value, or an OpenCL error code.
#pragma once

#include <CL/cl.h>

#include <optional>
#include <utility>

namespace grus {

// Only a device can tell, and the session has none now: whoever asks waits until it has. Never seen by the program.
inline constexpr cl_int kWaitsForDevice = -99'999;

struct Failure {
  cl_int code;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_{std::move(value)} {}     // NOLINT(google-explicit-constructor): a value is a result
  Result(Failure failure) : code_{failure.code} {}  // NOLINT(google-explicit-constructor): so is a failure

  explicit operator bool() const { return value_.has_value(); }
  cl_int error() const { return code_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  cl_int code_ = CL_SUCCESS;
};

}  // namespace grus
