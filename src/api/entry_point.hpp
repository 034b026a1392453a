// What the loader calls for each entry point: a function that passes the gate, runs the body and lets no exception out.
#pragma once

#include <new>
#include <utility>

#include "api/call.hpp"
#include "command/hold_back.hpp"

namespace grus {

template <Call kCall, auto kBody, typename Pointer>
struct EntryPoint;

template <Call kCall, auto kBody, typename Return, typename... Args>
struct EntryPoint<kCall, kBody, Return(CL_API_CALL*)(Args...)> {
  [[gnu::flatten]] static Return CL_API_CALL call(Args... args) noexcept {
    if (!Gate::enter_quickly(kCall)) [[unlikely]]
      return call_slowly(args...);
    if constexpr (std::is_void_v<Return>) {
      run(args...);
      Gate::leave_quickly();
    } else {
      const Return value = run(args...);
      Gate::leave_quickly();
      if (waits_for_device(value)) [[unlikely]]
        return call_slowly(args...);
      return value;
    }
  }

  [[gnu::noinline, gnu::cold]] static Return call_slowly(Args... args) {
    const Gate::Entry entry{kCall};
    if constexpr (std::is_void_v<Return>) {
      run(args...);
    } else {
      Return value = run(args...);
      while (waits_for_device(value)) {
        wait();
        value = run(args...);
      }
      return value;
    }
  }

  // The hottest calls are answered without a device, and needn't keep their arguments for a second time.
  static constexpr bool kNeverWaits =
      kCall == Call::clSetKernelArg || kCall == Call::clEnqueueNDRangeKernel || kCall == Call::clEnqueueReadBuffer ||
      kCall == Call::clEnqueueWriteBuffer || kCall == Call::clEnqueueUnmapMemObject || kCall == Call::clGetEventInfo ||
      kCall == Call::clReleaseEvent || kCall == Call::clFlush || kCall == Call::clFinish;
  template <typename Value>
  static bool waits_for_device(const Value& value) {
    if constexpr (std::is_same_v<Value, cl_int> && !kNeverWaits) return value == kWaitsForDevice;
    return false;
  }
  [[gnu::noinline, gnu::cold]] static void wait() {
    const Gate::Leave leave{Gate::Place::waiting};
    HoldBack::instance().wait_while_everything();
  }

  static Return run(Args... args) {
    if constexpr (BodyOf<Return(CL_API_CALL*)(Args...)>::returns_result()) {
      return unwrap(std::make_index_sequence<sizeof...(Args) - 1>{}, std::tuple<Args...>{args...});
    } else {
      try {
        return kBody(args...);
      } catch (...) {
        if constexpr (std::is_same_v<Return, cl_int>) {
          return CL_OUT_OF_HOST_MEMORY;
        } else {
          return Return();
        }
      }
    }
  }

  template <std::size_t... kIndex>
  static Return unwrap(std::index_sequence<kIndex...>, const std::tuple<Args...>& args) {
    cl_int* const code_out = std::get<sizeof...(Args) - 1>(args);
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    Return value{};
    try {
      auto result = kBody(std::get<kIndex>(args)...);
      while (!result && result.error() == kWaitsForDevice) {
        wait();
        result = kBody(std::get<kIndex>(args)...);
      }
      code = result.error();
      if (result) value = *result;
    } catch (...) {  // nothing but memory runs out on these paths
    }
    if (code_out) *code_out = code;
    return value;
  }
};

// The hottest calls are compiled where their bodies are, so that both become one function.
extern template struct EntryPoint<Call::clSetKernelArg, &api::clSetKernelArg,
                                  decltype(cl_icd_dispatch::clSetKernelArg)>;
extern template struct EntryPoint<Call::clEnqueueNDRangeKernel, &api::clEnqueueNDRangeKernel,
                                  decltype(cl_icd_dispatch::clEnqueueNDRangeKernel)>;
extern template struct EntryPoint<Call::clEnqueueReadBuffer, &api::clEnqueueReadBuffer,
                                  decltype(cl_icd_dispatch::clEnqueueReadBuffer)>;
extern template struct EntryPoint<Call::clEnqueueWriteBuffer, &api::clEnqueueWriteBuffer,
                                  decltype(cl_icd_dispatch::clEnqueueWriteBuffer)>;

}  // namespace grus
