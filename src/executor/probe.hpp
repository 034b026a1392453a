// Drivers crash and hang while they load. Before a library is loaded for the first time, a scratch process loads it; the
// library is remembered as good until it changes.
#pragma once

#include <string>

namespace grus {

// Empty if the library loads; otherwise what happened.
std::string probe_library(const std::string& library);

}  // namespace grus
