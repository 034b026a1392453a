#include "cli/table.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/log.hpp"

namespace grus::cli {

Style::Style(std::FILE* out) {
  const char* terminal = std::getenv("TERM");
  const char* refused = std::getenv("NO_COLOR");  // no-color.org
  coloured_ = isatty(fileno(out)) && !(refused && *refused) && terminal && std::string_view{terminal} != "dumb";
}

std::string Style::wrapped(std::string_view code, std::string_view text) const {
  return coloured_ ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string{text};
}

std::string Table::text(const Style& style, std::size_t indent) const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    std::size_t width = columns_[column].title.size();
    for (const auto& row : rows_) width = std::max(width, row[column].size());
    widths.push_back(width);
  }
  const auto line = [&](const auto& cell_of) {
    std::string out(indent, ' ');
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (column > 0) out += "  ";
      const std::string& cell = cell_of(column);
      out += columns_[column].align == Align::right ? fmt::format("{:>{}}", cell, widths[column])
                                                    : fmt::format("{:<{}}", cell, widths[column]);
    }
    return out.substr(0, out.find_last_not_of(' ') + 1);
  };
  std::string out =
      style.bold(line([&](std::size_t column) -> const std::string& { return columns_[column].title; })) + "\n";
  for (const auto& row : rows_)
    out += line([&](std::size_t column) -> const std::string& { return row[column]; }) + "\n";
  return out;
}

std::string with_thousands(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string out;
  for (std::size_t place = 0; place < digits.size(); ++place) {
    if (place > 0 && (digits.size() - place) % 3 == 0) out += ',';
    out += digits[place];
  }
  return out;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string wrapped_text(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (column > indent && column + 1 + word.size() > width) {
      out.append(1, '\n').append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

}  // namespace grus::cli
