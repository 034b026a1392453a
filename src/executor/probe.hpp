// Drivers crash and hang while they load. Before a library is loaded for the first time, a scratch process loads it;
// the library is remembered as good until it changes.
#pragma once

#include <string>

namespace grus {

// Any build of Grus exports this; it tells Grus apart from the drivers that it is to load.
inline constexpr const char* kGrusMark = "grus_icd_mark";

struct Probed {
  enum class Kind { loads, is_grus, misbehaves } kind = Kind::loads;
  std::string problem;  // what happened, if it misbehaves
};
Probed probe_library(const std::string& library);

}  // namespace grus
