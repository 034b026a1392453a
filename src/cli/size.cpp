#include "cli/size.hpp"

#include <charconv>
#include <limits>

#include "base/log.hpp"

namespace grus::cli {

bool read_size(std::string_view text, Size& size) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc{}) return false;
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t power = unit.empty() ? 0 : kUnits.find(unit[0]) + 1;
  const std::string_view rest = unit.empty() ? unit : unit.substr(1);
  if ((!unit.empty() && power == 0) || !(rest.empty() || rest == "iB")) return false;
  if (number > std::numeric_limits<std::uint64_t>::max() >> (10 * power)) return false;
  size.bytes = number << (10 * power);
  return true;
}

std::string text_of(Size size) {
  constexpr const char* kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; size.bytes != 0 && size.bytes % 1024 == 0 && unit < 4; ++unit) size.bytes /= 1024;
  return fmt::format("{}{}", size.bytes, kUnits[unit]);
}

}  // namespace grus::cli
