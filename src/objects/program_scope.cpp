#include "objects/program_scope.hpp"

#include <cctype>
#include <cstdint>
#include <string>
#include <vector>

namespace grus {
namespace {

using std::string_view;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The source as words and single signs, without comments, strings and preprocessor lines.
std::vector<std::string> tokens_of(string_view source) {
  std::vector<std::string> tokens;
  bool line_start = true;
  for (std::size_t at = 0; at < source.size();) {
    const char c = source[at];
    if (c == '\n') {
      line_start = true;
      ++at;
    } else if (source.substr(at, 2) == "//" || (c == '#' && line_start)) {
      // To the end of the line, and on if that is continued.
      while (at < source.size() && source[at] != '\n') at += source[at] == '\\' && at + 1 < source.size() ? 2 : 1;
    } else if (source.substr(at, 2) == "/*") {
      const std::size_t end = source.find("*/", at + 2);
      at = end == string_view::npos ? source.size() : end + 2;
    } else if (c == '"' || c == '\'') {
      for (++at; at < source.size() && source[at] != c; ++at) {
        if (source[at] == '\\') ++at;
      }
      ++at;
      tokens.emplace_back("\"\"");
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
    } else if (is_word(c)) {
      const std::size_t start = at;
      while (at < source.size() && is_word(source[at])) ++at;
      tokens.emplace_back(source.substr(start, at - start));
      line_start = false;
    } else {
      tokens.emplace_back(1, c);
      ++at;
      line_start = false;
    }
  }
  return tokens;
}

struct Declaration {
  bool empty = true;
  bool global = false;
  bool constant = false;
  bool type_only = false;  // typedef, struct, union, enum without a variable
  bool function = false;
  bool extern_or_sampler = false;

  void add(const std::string& token) {
    if (token == "__attribute__") return;
    if (token == "global" || token == "__global") global = true;
    if (token == "constant" || token == "__constant") constant = true;
    if (token == "typedef") type_only = true;
    if (token == "sampler_t") extern_or_sampler = true;
    empty = false;
  }
  bool is_variable(bool unqualified_is_global) const {
    if (empty || constant || type_only || function || extern_or_sampler) return false;
    return global || unqualified_is_global;
  }
};

bool is_standard_2_or_later(string_view options) {
  const std::size_t at = options.find("-cl-std=");
  if (at == string_view::npos) return false;
  const string_view standard = options.substr(at + 8);
  return standard.starts_with("CL2") || standard.starts_with("CL3") || standard.starts_with("CLC++");
}

}  // namespace

// Declarations outside all braces: what has a parameter list is a function, what has none and ends is a variable.
bool has_program_scope_variables(string_view source, string_view options) {
  const bool unqualified = is_standard_2_or_later(options);
  const auto tokens = tokens_of(source);
  Declaration declaration;
  std::string last_word;
  bool aggregate = false;  // struct, union or enum was seen in this declaration
  int parentheses = 0;
  int braces = 0;
  for (const auto& token : tokens) {
    if (token == "{") {
      ++braces;
    } else if (token == "}") {
      if (--braces == 0 && declaration.function) declaration = {}, aggregate = false;
    } else if (braces > 0) {
      continue;
    } else if (token == "(") {
      // An attribute's parentheses say nothing; a parameter list follows the function's name.
      if (parentheses++ == 0 && last_word != "__attribute__") declaration.function = true;
    } else if (token == ")") {
      --parentheses;
    } else if (parentheses > 0) {
      continue;
    } else if (token == ";") {
      const bool names_only_a_type = aggregate && !declaration.global && last_word.empty();
      if (!names_only_a_type && declaration.is_variable(unqualified && !aggregate)) return true;
      declaration = {};
      aggregate = false;
      last_word.clear();
    } else {
      declaration.add(token);
      if (token == "struct" || token == "union" || token == "enum") aggregate = true;
      last_word = token;
    }
  }
  return false;
}

// SPIR-V: a header of five words, then instructions; OpVariable (59) outside functions with storage class
// CrossWorkgroup (5) is such a variable, unless it is one of the kernel's built-in inputs, which are class Input.
bool has_program_scope_variables(const Bytes& il) {
  std::vector<std::uint32_t> words(il.size() / sizeof(std::uint32_t));
  if (!words.empty()) std::memcpy(words.data(), il.data(), words.size() * sizeof(std::uint32_t));
  constexpr std::uint32_t kMagic = 0x07230203;
  constexpr std::uint32_t kVariable = 59;
  constexpr std::uint32_t kCrossWorkgroup = 5;
  if (words.size() < 5) return false;
  const bool swapped = words[0] == __builtin_bswap32(kMagic);
  if (!swapped && words[0] != kMagic) return false;
  const auto word = [&](std::size_t index) { return swapped ? __builtin_bswap32(words[index]) : words[index]; };
  for (std::size_t at = 5; at < words.size();) {
    const std::uint32_t length = word(at) >> 16;
    const std::uint32_t opcode = word(at) & 0xffff;
    if (length == 0 || length > words.size() - at) return false;
    if (opcode == kVariable && length >= 4 && word(at + 3) == kCrossWorkgroup) return true;
    at += length;
  }
  return false;
}

}  // namespace grus
