// A parameter of a call: a good value, and bad ones with the codes that the specification allows for each. A case is a
// call in which all parameters are good but one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <concepts>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unit/bad_input/objects.hpp"

namespace grus::test {

// What a call without a code answers if it refuses: a null pointer. No code of OpenCL's is positive.
inline constexpr cl_int kNull = 1;

class Codes {
 public:
  constexpr Codes(cl_int code) : codes_{code, code, code} {}
  constexpr Codes(cl_int code, cl_int or_code) : codes_{code, or_code, or_code} {}
  constexpr Codes(cl_int code, cl_int or_code, cl_int or_this) : codes_{code, or_code, or_this} {}
  bool have(cl_int code) const { return std::find(codes_.begin(), codes_.end(), code) != codes_.end(); }
  std::string text() const { return ::testing::PrintToString(codes_); }

 private:
  std::array<cl_int, 3> codes_;
};

// Values of all types travel as one word: that keeps the machinery free of templates, and the table quick to compile.
using Word = std::uintptr_t;
template <typename T>
Word to_word(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<Word>(value);
  } else {
    return static_cast<Word>(value);
  }
}
template <typename T>
T from_word(Word word) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(word);
  } else {
    return static_cast<T>(word);
  }
}
using Make = std::function<Word()>;

// Not inlined, for the same reason: the table has a thousand values.
struct Values {
  struct Bad {
    std::string what;
    Make make;
    Codes codes;
  };
  Make good;
  std::vector<Bad> bad;

  [[gnu::noinline]] static Values* made_by(Make make) {
    static std::deque<Values> kept;  // for as long as the table
    return &kept.emplace_back(Values{std::move(make), {}});
  }
  [[gnu::noinline]] static Make constant(Word word) {
    return [word] { return word; };
  }
  [[gnu::noinline]] static Values* always(Word word) { return made_by(constant(word)); }
  [[gnu::noinline]] void but_made_by(const std::string& what, Make make, Codes codes) {
    std::erase_if(bad, [&](const Bad& known) { return known.what == what; });
    bad.push_back({what, std::move(make), codes});
  }
  [[gnu::noinline]] void but(const char* what, Word word, Codes codes) { but_made_by(what, constant(word), codes); }
};

// The values that a parameter of type T can have. Copies share them.
template <typename T>
class Parameter {
 public:
  template <std::convertible_to<T> Value>
  Parameter(Value value) : values_{Values::always(to_word(static_cast<T>(value)))} {}
  static Parameter made_by(Make make) { return Parameter{Values::made_by(std::move(make))}; }

  Parameter but(const char* what, T value, Codes codes) {
    values_->but(what, to_word(value), codes);
    return *this;
  }
  Parameter null(Codes codes) { return but("null", nullptr, codes); }
  Parameter but_made_by(const std::string& what, Make make, Codes codes) {
    values_->but_made_by(what, std::move(make), codes);
    return *this;
  }
  Values& values() const { return *values_; }

 private:
  explicit Parameter(Values* values) : values_{values} {}
  Values* values_;
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

// --- Calling
// -----------------------------------------------------------------------------------------------------------

template <Handle T>
void discard(T handle) {
  if (handle) release(handle);
}
inline void discard(void* mapped) {
  if (!mapped) return;
  for (cl_mem memory : {world().own.buffer, world().own.image}) {
    cl().clEnqueueUnmapMemObject(world().own.queue, memory, mapped, 0, nullptr, nullptr);
  }
}

// Calls, and returns the code, wherever it comes from.
template <typename Return, typename... Args, std::size_t... kIndex>
cl_int invoke(Return(CL_API_CALL* function)(Args...), const std::vector<Word>& words, std::index_sequence<kIndex...>) {
  if constexpr (std::is_void_v<Return>) {
    function(from_word<Args>(words[kIndex])...);
    return CL_SUCCESS;
  } else if constexpr (std::is_same_v<Return, cl_int>) {
    return function(from_word<Args>(words[kIndex])...);
  } else {
    answers.code = kNull;
    Return handle = function(from_word<Args>(words[kIndex])...);
    const bool told = answers.code != kNull;
    EXPECT_TRUE(!told || (handle != nullptr) == (answers.code == CL_SUCCESS)) << "code " << answers.code;
    discard(handle);
    return handle ? CL_SUCCESS : answers.code;
  }
}

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
  void add(const char* name, Codes expected, Return(CL_API_CALL* function)(Args...),
           std::type_identity_t<Parameter<Args>>... parameters) {
    add_row(name, expected, {&parameters.values()...}, [function](const std::vector<Word>& words) {
      return invoke(function, words, std::index_sequence_for<Args...>{});
    });
    if (((Handle<Args> && parameters.values().bad.empty()) || ...))
      ADD_FAILURE() << name << " has a handle without bad values";
  }
  const std::vector<Case>& operator[](const std::string& name) { return rows_[name]; }

 private:
  using Invoke = std::function<cl_int(const std::vector<Word>&)>;

  void add_row(const char* name, Codes expected, const std::vector<const Values*>& parameters, const Invoke& call) {
    const auto run_with = [=](const Values* varied, const Make& value) {
      return [=] {
        std::vector<Word> words;
        for (const Values* parameter : parameters) words.push_back(parameter == varied ? value() : parameter->good());
        const cl_int code = call(words);
        EXPECT_TRUE(code == CL_SUCCESS || answers.is_empty()) << "refused, but an object was handed out";
        answers.clear();
        return code;
      };
    };
    auto& cases = rows_[name];
    cases.push_back({"all is well", run_with(nullptr, nullptr), expected});
    for (std::size_t next = 0; next < parameters.size(); ++next) {
      for (const auto& bad : parameters[next]->bad) {
        const std::string what = "parameter " + std::to_string(next + 1) + " is " + bad.what;
        cases.push_back({what, run_with(parameters[next], bad.make), bad.codes});
      }
    }
    cases.push_back({"all is well again", run_with(nullptr, nullptr), expected});
  }

  std::map<std::string, std::vector<Case>> rows_;
};

}  // namespace grus::test
