#include "base/log.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace grus::log {
namespace {

Level level_from_environment() {
  const char* wanted = std::getenv("GRUS_LOG");
  const std::string_view name = wanted ? wanted : "warn";
  if (name == "error") return Level::error;
  if (name == "info") return Level::info;
  if (name == "debug") return Level::debug;
  return Level::warn;
}

}  // namespace

bool enabled(Level level) {
  static const Level limit = level_from_environment();
  return level <= limit;
}

void write(Level level, std::string_view event, std::string_view text) {
  const char* prefix = level <= Level::warn ? "" : "# ";
  const std::string line = fmt::format("grus: {}{}: {}\n", prefix, event, text);
  // One write, so that lines of several threads and processes don't mix; there is nowhere to report its failure.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace grus::log
