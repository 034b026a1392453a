// Bytes made fewer, with LZ4.
#pragma once

#include <cstddef>
#include <span>

namespace grus::lz4 {

// How many of `to` they take; 0 if they don't fit in.
std::size_t pack(std::span<const std::byte> from, std::span<std::byte> to);
// False if they aren't what was packed from so many bytes: they may come from anybody.
bool unpack(std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace grus::lz4
