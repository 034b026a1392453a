// Whether a kernel can be run in pieces, some of its work-groups at a time, without being able to see it.
#pragma once

#include <array>

#include "command/command.hpp"
#include "objects/program.hpp"

namespace grus {

enum class Splits : std::uint8_t {
  never,
  with_local_size,  // if the program says how large work-groups are
  always,
};

// By what its program was made of, options included. Whatever isn't known to be harmless isn't split.
Splits splits_of(const Recipe& recipe);

// A part of a launch.
struct Piece {
  Triple offset{};
  Triple global{};
  std::uint64_t items = 0;
};

// Takes a launch apart, some work-groups at a time. They are counted in one dimension, along which it is cut.
class Cutter {
 public:
  Cutter(const command::Launch& launch, Splits splits);
  std::size_t left() const { return left_; }  // 0 if it can't be taken apart
  // So many, or a few more, that all of a device's cores have something to do until the end.
  std::size_t filling(std::size_t groups, std::size_t cores) const;
  Piece take(std::size_t groups);

 private:
  Piece rest_;
  std::size_t dimension_ = 0;
  std::size_t group_ = 0;  // its size there
  std::size_t rows_ = 1;   // groups beside it, in the other dimensions
  std::size_t left_ = 0;
};

}  // namespace grus
