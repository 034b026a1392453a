// Ids name objects across the seam. They are chosen above it, are 64 bits wide and are never reused; their low bits are
// the object's slot, so that both sides find what they hold with one array access.
#pragma once

#include <cstdint>

namespace grus {

class ObjectId {
 public:
  constexpr ObjectId() = default;
  constexpr ObjectId(std::uint64_t generation, std::uint32_t slot) : value_{generation << kSlotBits | slot} {}
  static constexpr ObjectId of(std::uint64_t value) {
    return {value >> kSlotBits, static_cast<std::uint32_t>(value & ((1U << kSlotBits) - 1))};
  }

  constexpr std::uint32_t slot() const { return static_cast<std::uint32_t>(value_ & ((1U << kSlotBits) - 1)); }
  constexpr std::uint64_t value() const { return value_; }
  constexpr explicit operator bool() const { return value_ != 0; }
  constexpr bool operator==(const ObjectId&) const = default;

 private:
  static constexpr int kSlotBits = 24;
  std::uint64_t value_ = 0;  // generation 0 is never handed out, so 0 names nothing
};

}  // namespace grus
