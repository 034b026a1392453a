// Why this session can't be moved, if anything stands in the way. A session that uses such a thing works all the same.
#pragma once

#include <string>
#include <vector>

namespace grus {

void note_immovable(const std::string& reason);
std::vector<std::string> immovable_reasons();

}  // namespace grus
