// Sizes as people write them: 512, 64MiB, 2G, in powers of 1024.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace grus::cli {

struct Size {
  std::uint64_t bytes = 0;
};

// False if that is no size.
bool read_size(std::string_view text, Size& size);
std::string text_of(Size size);

}  // namespace grus::cli
