// How values become bytes and come back. A structure says once, in fields(), what it consists of, for both directions.
// What comes back is checked: a reader never looks beyond its bytes and throws BadMessage instead.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "objects/facts.hpp"

namespace grus::wire {

struct BadMessage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A structure or a constant of its type: fields() is for both directions.
template <typename T, typename Wanted>
concept Like = std::same_as<std::remove_const_t<T>, Wanted>;

// Types whose bytes are their value. Structures say so themselves: they must hold no pointers.
template <typename T>
inline constexpr bool kIsPlain = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <typename T, std::size_t kSize>
inline constexpr bool kIsPlain<std::array<T, kSize>> = kIsPlain<T>;
template <typename T>
constexpr bool is_truth() {
  if constexpr (std::is_enum_v<T>) return std::is_same_v<std::underlying_type_t<T>, bool>;
  return std::is_same_v<T, bool>;
}
template <typename T>
concept Plain = kIsPlain<T> &&(std::is_floating_point_v<T> || std::has_unique_object_representations_v<T>);

class Writer {
 public:
  explicit Writer(Bytes& bytes) : bytes_{bytes} {}

  // Neighbours whose bytes are their values are added together.
  template <typename... Values>
  void operator()(const Values&... values) {
    if constexpr (constexpr std::size_t kPlain = (plain_size<Values>() + ... + 0); kPlain != 0) {
      Together<kPlain> together;
      (put_or_keep(values, together), ...);
      put_kept(together);
    } else {
      (put(values), ...);
    }
  }
  void add(const void* data, std::size_t size) {
    if (size == 0) return;
    const auto* const bytes = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }

 private:
  template <std::size_t kSize>
  struct Together {
    std::array<std::byte, kSize> bytes;
    std::size_t size = 0;
  };
  template <typename T>
  static constexpr std::size_t plain_size() {
    return Plain<T> ? sizeof(T) : 0;
  }
  template <typename T>
  void put_or_keep(const T& value, auto& together) {
    if constexpr (Plain<T>) {
      std::memcpy(together.bytes.data() + together.size, &value, sizeof value);
      together.size += sizeof value;
    } else {
      put_kept(together);
      put(value);
    }
  }
  void put_kept(auto& together) {
    if (together.size != 0) add(together.bytes.data(), together.size);
    together.size = 0;
  }
  template <Plain T>
  void put(const T& value) {
    add(&value, sizeof value);
  }
  template <typename T>
  requires(!Plain<T>) void put(const T& value) { fields(*this, value); }
  void put(const std::string& text) {
    put(text.size());
    add(text.data(), text.size());
  }
  template <typename T>
  void put(const std::vector<T>& list) {
    put(list.size());
    if constexpr (Plain<T>) {
      add(list.data(), list.size() * sizeof(T));
    } else {
      for (const T& entry : list) put(entry);
    }
  }
  template <typename T>
  void put(const std::span<T>& list) {
    put(list.size());
    add(list.data(), list.size_bytes());
  }
  template <typename Key, typename T>
  void put(const std::map<Key, T>& map) {
    put(map.size());
    for (const auto& [key, value] : map) (*this)(key, value);
  }
  template <typename T>
  void put(const Result<T>& result) {
    put(result.error());
    if (result) put(*result);
  }

  Bytes& bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_{bytes} {}

  template <typename... Values>
  void operator()(Values&... values) {
    (get(values), ...);
  }
  template <typename T>
  T take() {
    T value{};
    get(value);
    return value;
  }
  template <typename T>
  Result<T> take_result() {
    const auto code = take<cl_int>();
    if (code != CL_SUCCESS) return Failure{code};
    return take<T>();
  }
  std::span<const std::byte> take_bytes(std::size_t size) {
    if (size > bytes_.size()) throw BadMessage{"a message ends too early"};
    const auto taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }
  bool is_at_end() const { return bytes_.empty(); }
  void expect_end() const {
    if (!bytes_.empty()) throw BadMessage{"a message is longer than what it says"};
  }

 private:
  template <Plain T>
  void get(T& value) {
    const auto bytes = take_bytes(sizeof value);
    if constexpr (is_truth<T>()) {  // of which only 0 and 1 may be in memory
      value = static_cast<T>(bytes[0] != std::byte{0});
    } else {
      std::memcpy(&value, bytes.data(), sizeof value);
    }
  }
  template <typename T>
  requires(!Plain<T>) void get(T& value) { fields(*this, value); }
  void get(std::string& text) {
    const auto bytes = take_bytes(take<std::size_t>());
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  template <typename T>
  void get(std::vector<T>& list) {
    const auto count = take<std::size_t>();
    if (count > bytes_.size())
      throw BadMessage{"a list is longer than its message"};  // every entry has a byte at least
    list.clear();
    if constexpr (Plain<T>) {
      if (count > bytes_.size() / sizeof(T)) throw BadMessage{"a list is longer than its message"};
      list.resize(count);
      const auto bytes = take_bytes(count * sizeof(T));
      if (!bytes.empty()) std::memcpy(list.data(), bytes.data(), bytes.size());
    } else {
      for (std::size_t index = 0; index < count; ++index) get(list.emplace_back());
    }
  }
  template <typename Key, typename T>
  void get(std::map<Key, T>& map) {
    const auto count = take<std::size_t>();
    for (std::size_t index = 0; index < count; ++index) {
      const Key key = take<Key>();
      get(map[key]);
    }
  }

  std::span<const std::byte> bytes_;
};

}  // namespace grus::wire
