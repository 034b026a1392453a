// What never changes about a device or a kernel is asked for once and answered from here ever after.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace grus {

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes to_bytes(const T& value) {
  Bytes bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <typename T>
T from_bytes(const Bytes& bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof(T)));
  return value;
}

template <typename T>
std::vector<T> list_from_bytes(const Bytes& bytes) {
  std::vector<T> list(bytes.size() / sizeof(T));
  if (!list.empty()) std::memcpy(list.data(), bytes.data(), list.size() * sizeof(T));
  return list;
}

// A string as OpenCL hands it out, without the closing zero.
inline std::string text_from_bytes(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()),
          strnlen(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
}

class FactCache {
 public:
  // A failure is a fact too: a device that doesn't know a query won't learn it.
  template <typename Fetch>
  const Result<Bytes>& get(std::uint64_t key, Fetch fetch) {
    const std::lock_guard lock{mutex_};
    const auto known = facts_.find(key);
    if (known != facts_.end()) return known->second;
    auto fact = fetch();
    if (!fact && fact.error() == kWaitsForDevice) {
      static const Result<Bytes> waits{Failure{kWaitsForDevice}};
      return waits;
    }
    return facts_.emplace(key, std::move(fact)).first->second;
  }
  // All that was asked for.
  std::map<std::uint64_t, Result<Bytes>> all() {
    const std::lock_guard lock{mutex_};
    return facts_;
  }

 private:
  std::mutex mutex_;  // guards facts_; entries are never changed once they are in
  std::map<std::uint64_t, Result<Bytes>> facts_;
};

}  // namespace grus
