// What an executor holds for an object, by the id that is used above the seam.
#pragma once

#include <new>

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
  Handle operator[](ObjectId id) const {
    const Entry& entry = *entries_.at(id.slot());
    return entry.id == id.value() ? entry.handle : Handle{};
  }
  void set(ObjectId id, Handle handle) {
    if (id.slot() >= entries_.capacity()) throw std::bad_alloc{};  // the address space is limited
    *entries_.at(id.slot()) = {id.value(), handle};
  }
  Handle take(ObjectId id) {
    const Handle handle = (*this)[id];
    *entries_.at(id.slot()) = {};
    return handle;
  }

 private:
  struct Entry {
    std::uint64_t id;
    Handle handle;
  };
  ReservedArray<Entry> entries_;
};

}  // namespace grus
