// The table that ICD loaders call through: for each entry point a function that passes the gate, runs the body and lets
// no exception out.
#include "api/dispatch.hpp"

#include <new>
#include <utility>

#include "api/call.hpp"

namespace grus {
namespace {

template <Call kCall, auto kBody, typename Pointer>
struct EntryPoint;

template <Call kCall, auto kBody, typename Return, typename... Args>
struct EntryPoint<kCall, kBody, Return(CL_API_CALL*)(Args...)> {
  static Return CL_API_CALL call(Args... args) noexcept {
    if (!Gate::enter_quickly(kCall)) [[unlikely]]
      return call_slowly(args...);
    if constexpr (std::is_void_v<Return>) {
      run(args...);
      Gate::leave_quickly();
    } else {
      const Return value = run(args...);
      Gate::leave_quickly();
      return value;
    }
  }

  [[gnu::noinline, gnu::cold]] static Return call_slowly(Args... args) {
    const Gate::Entry entry{kCall};
    return run(args...);
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
      code = result.error();
      if (result) value = *result;
    } catch (...) {  // nothing but memory runs out on these paths
    }
    if (code_out) *code_out = code;
    return value;
  }
};

// For slots whose extensions aren't offered. All of them return a code or a handle, which fits a register, and none can
// be reached by a program that asks before it calls.
std::intptr_t CL_API_CALL unsupported() noexcept { return CL_INVALID_OPERATION; }
void* CL_API_CALL unsupported_create() noexcept { return nullptr; }

cl_icd_dispatch make_table() {
  cl_icd_dispatch table{};
#define GRUS_CALL(name, since, family, kind) \
  table.name = EntryPoint<Call::name, &api::name, decltype(cl_icd_dispatch::name)>::call;
#include "api/calls.inc"
#undef GRUS_CALL
  const auto fill = [](auto& slot, std::string_view name) {
    const bool creates = name.starts_with("clCreate") && name != "clCreateSubDevicesEXT";
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(
        creates ? reinterpret_cast<void*>(&unsupported_create) : reinterpret_cast<void*>(&unsupported));
  };
#define GRUS_UNSUPPORTED(name) fill(table.name, #name);
#include "api/unsupported.inc"
#undef GRUS_UNSUPPORTED
  table.clGetKernelSubGroupInfoKHR = table.clGetKernelSubGroupInfo;
  return table;
}

}  // namespace

const cl_icd_dispatch& dispatch_table() {
  static const cl_icd_dispatch table = make_table();
  return table;
}

}  // namespace grus
