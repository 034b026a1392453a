#include "cli/tenant_text.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>

#include "base/log.hpp"
#include "cli/size.hpp"

namespace grus::cli {
namespace {

unsigned read_number(std::string_view name, std::string_view text, unsigned most) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number == 0 || number > most)
    throw std::invalid_argument{fmt::format("{} must be a number from 1 to {}", name, most)};
  return number;
}

}  // namespace

// Names of certificates may have colons.
std::pair<std::string, server::TenantTerms> read_tenant(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw std::invalid_argument{"write NAME:weight=3, NAME:cap=50, NAME:memory=4GiB, or several with commas between"};
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; }))
    throw std::invalid_argument{"a name has no such characters"};
  server::TenantTerms terms;
  std::string_view rest = std::string_view{text}.substr(colon + 1);
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::size_t equals = std::min(one.find('='), one.size());
    const std::string_view name = one.substr(0, equals);
    const std::string_view value = one.substr(std::min(equals + 1, one.size()));
    if (name == "weight") {
      terms.weight = read_number(name, value, server::TenantTerms::kMostWeight);
    } else if (name == "cap") {
      terms.cap = read_number(name, value, 100);
    } else if (name == "memory") {
      Size size;
      if (!read_size(value, size) || size.bytes == 0)
        throw std::invalid_argument{"memory must be a size: 512MiB or 2GiB"};
      terms.memory = size.bytes;
    } else {
      throw std::invalid_argument{fmt::format("there is weight, cap and memory, but no {}", name)};
    }
  }
  return {text.substr(0, colon), terms};
}

}  // namespace grus::cli
