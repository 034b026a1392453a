// Output for people: aligned columns, sizes with units, and colours where the output is a terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace grus::cli {

class Style {
 public:
  explicit Style(std::FILE* out);
  std::string bold(std::string_view text) const { return wrapped("1", text); }
  std::string dim(std::string_view text) const { return wrapped("2", text); }

 private:
  std::string wrapped(std::string_view code, std::string_view text) const;
  bool coloured_;
};

enum class Align { left, right };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_{std::move(columns)} {}

  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  std::string text(const Style& style, std::size_t indent) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string with_thousands(std::uint64_t number);  // 1,234,567
std::string size_text(std::uint64_t bytes);        // 23.4 GiB
// Broken into lines between words; all but the first are indented.
std::string wrapped_text(std::string_view text, std::size_t indent, std::size_t width = 100);

}  // namespace grus::cli
