// A tenant's terms as people write them: NAME:weight=3,cap=50
#pragma once

#include <string>
#include <utility>

#include "server/scheduler.hpp"

namespace grus::cli {

// Throws std::invalid_argument.
std::pair<std::string, server::TenantTerms> read_tenant(const std::string& text);

}  // namespace grus::cli
