// The objects of one type that a client has made, and what became of each, by slot as the executor has them.
#pragma once

#include <new>

#include "base/reserved_array.hpp"
#include "objects/facts.hpp"
#include "objects/id.hpp"

namespace grus::server {

class KnownObjects {
 public:
  KnownObjects() { entries_.reserve(); }
  ~KnownObjects() { entries_.give_back(); }
  KnownObjects(const KnownObjects&) = delete;
  KnownObjects& operator=(const KnownObjects&) = delete;

  std::size_t count() const { return count_; }
  // What became of its creation; null if it isn't there.
  const cl_int* find(ObjectId id) const {
    const Entry* const entry = id ? at(id) : nullptr;
    return entry && entry->id == id ? &entry->code : nullptr;
  }
  // Whatever has the id's slot; none if nothing has.
  ObjectId in_slot_of(ObjectId id) const {
    const Entry* const entry = at(id);
    return entry ? entry->id : ObjectId{};
  }
  void add(ObjectId id, cl_int code) {
    Entry* const entry = at(id);
    if (!entry) throw std::bad_alloc{};  // the address space is limited
    *entry = {id, code};
    ++count_;
  }
  void remove(ObjectId id) {
    *at(id) = {};
    --count_;
  }

 private:
  struct Entry {
    ObjectId id;
    cl_int code;
  };
  Entry* at(ObjectId id) const { return id.slot() < entries_.capacity() ? entries_.at(id.slot()) : nullptr; }

  ReservedArray<Entry> entries_;
  std::size_t count_ = 0;
};

}  // namespace grus::server
