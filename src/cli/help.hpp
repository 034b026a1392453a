// How --help looks: descriptions that stay within the screen.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

#include "cli/table.hpp"

namespace grus::cli {

class Help : public CLI::Formatter {
 public:
  // What follows "Usage:"; made from the options if empty.
  explicit Help(std::string usage = "") : usage_{std::move(usage)} { column_width(kLeftColumn); }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    return usage_.empty() ? CLI::Formatter::make_usage(app, std::move(name)) : "Usage: " + usage_ + "\n";
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped_text(option->get_description(), 0, kScreen - kLeftColumn);
  }

 private:
  static constexpr std::size_t kLeftColumn = 30;
  static constexpr std::size_t kScreen = 100;
  std::string usage_;
};

}  // namespace grus::cli
