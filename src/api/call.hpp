// The entry points as an enumeration, and how the body of each looks.
#pragma once

#include <CL/cl_icd.h>

#include <tuple>
#include <type_traits>

#include "base/result.hpp"
#include "command/gate.hpp"

namespace grus {

enum class Call : std::uint16_t {
#define GRUS_CALL(name, since, family, kind) name,
#include "api/calls.inc"
#undef GRUS_CALL
  kCount
};
static_assert(static_cast<std::size_t>(Call::kCount) < kMostCalls);

inline constexpr const char* kCallNames[] = {
#define GRUS_CALL(name, since, family, kind) #name,
#include "api/calls.inc"
#undef GRUS_CALL
};

// The body of an entry point has its signature, with one exception: where OpenCL returns a handle or a pointer and an
// error code through its last parameter, the body returns a Result and has no such parameter.
template <typename Pointer>
struct BodyOf;

template <typename Return, typename... Args>
struct BodyOf<Return(CL_API_CALL*)(Args...)> {
  using All = std::tuple<Args...>;
  static constexpr std::size_t kCount = sizeof...(Args);
  template <std::size_t kIndex>
  using Arg = std::tuple_element_t<kIndex, All>;

  static constexpr bool returns_result() {
    if constexpr (kCount == 0 || !std::is_pointer_v<Return>) {
      return false;
    } else {
      return std::is_same_v<Arg<kCount - 1>, cl_int*>;
    }
  }
  template <std::size_t... kIndex>
  static auto without_last(std::index_sequence<kIndex...>) -> Result<Return> (*)(Arg<kIndex>...);

  static auto type() {
    if constexpr (returns_result()) {
      return static_cast<decltype(without_last(std::make_index_sequence<kCount - 1>{}))>(nullptr);
    } else {
      return static_cast<Return (*)(Args...)>(nullptr);
    }
  }
  using Type = std::remove_pointer_t<decltype(type())>;
};

namespace api {

#define GRUS_CALL(name, since, family, kind) BodyOf<decltype(cl_icd_dispatch::name)>::Type name;
#include "api/calls.inc"
#undef GRUS_CALL

}  // namespace api
}  // namespace grus
