// Whether a kernel can be run in pieces, some of its work-groups at a time, without being able to see it.
#pragma once

#include <array>
#include <vector>

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

// About so many, of whole work-groups; one or none if it can't be split.
std::vector<Piece> pieces_of(const command::Launch& launch, Splits splits, std::size_t count);

}  // namespace grus
