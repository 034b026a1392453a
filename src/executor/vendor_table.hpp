// What an executor holds for an object, by the id that is used above the seam.
#pragma once

#include <new>
#include <utility>

#include "base/reserved_array.hpp"
#include "objects/id.hpp"

namespace grus {

template <typename Handle>
class VendorTable {
 public:
  VendorTable() { entries_.reserve(); }
  ~VendorTable() { entries_.give_back(); }
  VendorTable(const VendorTable&) = delete;
  VendorTable& operator=(const VendorTable&) = delete;

  // The id was checked above the seam, or by the worker for a peer; a null handle is answered by the caller.
  const Handle& operator[](ObjectId id) const {
    const Entry& entry = *entries_.at(id.slot());
    return entry.id == id.value() ? entry.handle : kNone;
  }
  void set(ObjectId id, Handle handle) {
    if (id.slot() >= entries_.capacity()) throw std::bad_alloc{};  // the address space is limited
    *entries_.at(id.slot()) = {id.value(), std::move(handle)};
  }
  Handle take(ObjectId id) {
    Entry taken = std::exchange(*entries_.at(id.slot()), {});
    return taken.id == id.value() ? std::move(taken.handle) : Handle{};
  }

 private:
  struct Entry {
    std::uint64_t id;
    Handle handle;
  };
  static inline const Handle kNone{};
  ReservedArray<Entry> entries_;
};

}  // namespace grus
