// A parameter of a call: a good value, and bad ones with the codes that the specification allows for each. A case is a
// call in which all parameters are good but one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unit/bad_input/objects.hpp"

namespace grus::test {

// What a call without a code answers if it refuses: a null pointer. No code of OpenCL's is positive.
inline constexpr cl_int kNull = 1;

struct Codes : std::vector<cl_int> {
  Codes(cl_int code) : vector{code} {}
  Codes(std::initializer_list<cl_int> codes) : vector{codes} {}
  bool have(cl_int code) const { return std::find(begin(), end(), code) != end(); }
};

template <typename T>
struct Parameter {
  using Make = std::function<T()>;
  struct Bad {
    std::string what;
    Make make;
    Codes codes;
  };
  Make good;
  std::vector<Bad> bad;

  template <typename Value>
    requires std::convertible_to<Value, T>
  Parameter(Value value) : good{[value] { return static_cast<T>(value); }} {}
  Parameter(Make make) : good{std::move(make)} {}

  Parameter but(std::string what, T value, Codes codes) const {
    Parameter more = *this;
    std::erase_if(more.bad, [&](const Bad& known) { return known.what == what; });
    more.bad.push_back({std::move(what), [value] { return value; }, std::move(codes)});
    return more;
  }
  Parameter null(Codes codes) const { return but("null", nullptr, std::move(codes)); }
};

// What calls write to. Objects that they return here are released after each call.
struct Answers {
  cl_int code;
  cl_event event;
  std::array<cl_device_id, 1> devices;
  std::array<cl_kernel, 2> kernels;

  bool is_empty() const { return !event && !devices[0] && !kernels[0] && !kernels[1]; }
  void clear() {
    const auto drop = [](auto& handle) {
      if (handle) release(handle);
      handle = nullptr;
    };
    drop(event);
    for (auto& device : devices) drop(device);
    for (auto& kernel : kernels) drop(kernel);
  }
};
inline Answers answers{};

struct Case {
  std::string what;
  std::function<cl_int()> run;
  Codes codes;
};

// Calls by name, with their cases.
class Table {
 public:
  // `expected` is for the call in which all parameters are good: not success, if Grus doesn't offer it.
  template <typename Return, typename... Args>
  void add(const char* name, Codes expected, Return(CL_API_CALL* function)(Args...), std::type_identity_t<Parameter<Args>>... given) {
    const auto parameters = std::make_shared<std::tuple<Parameter<Args>...>>(std::move(given)...);
    add_cases(rows_[name], expected, function, parameters, std::index_sequence_for<Args...>{});
  }
  const std::vector<Case>& operator[](const std::string& name) { return rows_[name]; }

 private:
  template <typename Return, typename... Args, std::size_t... kIndex>
  static void add_cases(std::vector<Case>& cases, const Codes& expected, Return(CL_API_CALL* function)(Args...),
                        std::shared_ptr<std::tuple<Parameter<Args>...>> parameters, std::index_sequence<kIndex...>) {
    const auto good = [=] { return invoke(function, std::get<kIndex>(*parameters).good()...); };
    cases.push_back({"all is well", good, expected});
    const auto vary = [&]<std::size_t kVaried>(std::integral_constant<std::size_t, kVaried>) {
      const auto& parameter = std::get<kVaried>(*parameters);
      using Type = std::tuple_element_t<kVaried, std::tuple<Args...>>;
      if (Handle<Type> && parameter.bad.empty()) ADD_FAILURE() << "parameter " << kVaried + 1 << ": no bad handles";
      for (const auto& bad : parameter.bad) {
        const auto run = [=] {
          const auto value = [&]<std::size_t kThis>(std::integral_constant<std::size_t, kThis>) {
            if constexpr (kThis == kVaried) {
              return bad.make();
            } else {
              return std::get<kThis>(*parameters).good();
            }
          };
          return invoke(function, value(std::integral_constant<std::size_t, kIndex>{})...);
        };
        cases.push_back({"parameter " + std::to_string(kVaried + 1) + " is " + bad.what, run, bad.codes});
      }
    };
    (vary(std::integral_constant<std::size_t, kIndex>{}), ...);
    cases.push_back({"all is well again", good, expected});
  }

  // The code of a call, wherever it returns it. Refused calls must not hand out anything.
  template <typename Return, typename... Args>
  static cl_int invoke(Return(CL_API_CALL* function)(Args...), Args... args) {
    answers.code = kNull;
    cl_int code = CL_SUCCESS;
    if constexpr (std::is_void_v<Return>) {
      function(args...);
    } else if constexpr (std::is_same_v<Return, cl_int>) {
      code = function(args...);
    } else {
      Return handle = function(args...);
      code = handle ? CL_SUCCESS : answers.code;
      if (handle && answers.code != kNull) EXPECT_EQ(answers.code, CL_SUCCESS);
      discard(handle);
    }
    if (code != CL_SUCCESS) EXPECT_TRUE(answers.is_empty()) << "refused, but an object was handed out";
    answers.clear();
    return code;
  }

  template <Handle T>
  static void discard(T handle) {
    if (handle) release(handle);
  }
  static void discard(void* mapped) {
    if (!mapped) return;
    for (cl_mem memory : {world().own.buffer, world().own.image}) {
      cl().clEnqueueUnmapMemObject(world().own.queue, memory, mapped, 0, nullptr, nullptr);
    }
  }

  std::map<std::string, std::vector<Case>> rows_;
};

}  // namespace grus::test
