// Messages for the person who runs the program: quiet by default, one line that can be acted on when something fails.
// Event first, then what happened: log::warn("vendor.load", "{} can't be loaded: {}", path, why).
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace grus::log {

enum class Level { error, warn, info, debug };

// GRUS_LOG=error|warn|info|debug; warn unless told.
bool enabled(Level level);
void write(Level level, std::string_view event, std::string_view text);

template <typename... Args>
void error(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::error)) write(Level::error, event, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::warn)) write(Level::warn, event, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info)) write(Level::info, event, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void debug(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::debug)) write(Level::debug, event, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace grus::log
