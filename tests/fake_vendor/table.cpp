#include "table.hpp"

#include <cstring>
#include <tuple>

#include "behaviour.hpp"
#include "worker.hpp"

namespace fake {
namespace {

template <std::size_t kSize>
struct Name {
  consteval Name(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }
  char text[kSize];
};

// What an entry point that fails returns: the code, or null with the code in its last parameter.
template <typename Return, typename... Args>
Return fail(cl_int code, Args... args) {
  if constexpr (std::is_same_v<Return, cl_int>) {
    return code;
  } else {
    if (cl_int* code_out = std::get<sizeof...(Args) - 1>(std::tuple{args...})) *code_out = code;
    return nullptr;
  }
}

template <Name kName, auto kBody, typename Pointer>
struct EntryPoint;

template <Name kName, auto kBody, typename Return, typename... Args>
struct EntryPoint<kName, kBody, Return(CL_API_CALL*)(Args...)> {
  static Return CL_API_CALL call(Args... args) {
    worker().drop_finished();
    if (const cl_int code = misbehave_in(kName.text); code != CL_SUCCESS) return fail<Return>(code, args...);
    return kBody(args...);
  }
};

template <typename Pointer>
struct Missing;

template <typename Return, typename... Args>
struct Missing<Return(CL_API_CALL*)(Args...)> {
  static Return CL_API_CALL call(Args... args) { return fail<Return>(CL_INVALID_OPERATION, args...); }
};

cl_icd_dispatch make_table() {
  cl_icd_dispatch made{};
#define FAKE_CALL(name) made.name = EntryPoint<#name, &fake::name, decltype(cl_icd_dispatch::name)>::call;
#define FAKE_MISSING(name) made.name = Missing<decltype(cl_icd_dispatch::name)>::call;
#include "calls.inc"
#undef FAKE_CALL
#undef FAKE_MISSING
  return made;
}

using GetPlatforms =
    EntryPoint<"clIcdGetPlatformIDsKHR", &fake::clGetPlatformIDs, decltype(cl_icd_dispatch::clGetPlatformIDs)>;

}  // namespace

const cl_icd_dispatch& table() {
  static const cl_icd_dispatch made = make_table();
  return made;
}

}  // namespace fake

extern "C" {

[[gnu::visibility("default")]] void* CL_API_CALL clGetExtensionFunctionAddress(const char* name) {
  if (!name || std::strcmp(name, "clIcdGetPlatformIDsKHR") != 0 || fake::is_told("no-icd")) return nullptr;
  return reinterpret_cast<void*>(&fake::GetPlatforms::call);
}

[[gnu::visibility("default")]] cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id platform, cl_platform_info query,
                                                                    size_t size, void* value, size_t* size_out) {
  return fake::clGetPlatformInfo(platform, query, size, value, size_out);
}

// For tests that have held the commands back: they run from now on.
[[gnu::visibility("default")]] void fake_vendor_let_go() { fake::worker().let_go(); }
}
