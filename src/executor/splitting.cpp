#include "executor/splitting.hpp"

#include <algorithm>
#include <string_view>

#include "objects/program_scope.hpp"

namespace grus {
namespace {

// What tells a work-item where it is among all of them, what work-groups could wait for each other by, and what could
// hide any of that from who only looks for words.
constexpr std::string_view kTelling[] = {"get_group_id",
                                         "get_num_groups",
                                         "get_global_size",
                                         "get_global_offset",
                                         "get_global_linear_id",
                                         "atom",
                                         "volatile",
                                         "pipe",
                                         "enqueue",
                                         "printf",
                                         "asm",
                                         "fence",
                                         "import",
                                         "__builtin",
                                         "__sync",
                                         "__spirv",
                                         "__nv",
                                         "__amd",
                                         "##",
                                         "%:",
                                         "??"};
// What depends on the size of work-groups, which drivers choose by the size of the launch.
constexpr std::string_view kOfGroups[] = {"get_local", "get_enqueued_local", "work_group", "sub_group", "barrier"};

// Of a driver's choice.
constexpr std::size_t kUsualGroup = 256;

// Lines may be broken within words.
std::string joined(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\') {
      out += text[at];
      continue;
    }
    std::size_t end = at + 1;
    while (end < text.size() && (text[end] == ' ' || text[end] == '\t' || text[end] == '\r')) ++end;
    if (end < text.size() && text[end] == '\n') {
      at = end;
    } else {
      out += '\\';
    }
  }
  return out;
}

template <std::size_t kCount>
bool has_one_of(const std::string& text, const std::string_view (&words)[kCount]) {
  return std::any_of(std::begin(words), std::end(words),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

Splits splits_of_text(std::string_view raw) {
  const std::string text = joined(raw);
  if (has_one_of(text, kTelling)) return Splits::never;
  return has_one_of(text, kOfGroups) ? Splits::with_local_size : Splits::always;
}

// Files of the server's own host are not looked at.
bool has_unknown_headers(const Recipe& recipe) {
  const std::string text = joined(recipe.source);
  for (std::size_t at = 0; (at = text.find("include", at)) != std::string::npos; ++at) {
    const std::size_t line_end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, line_end - at);
    const bool is_known = std::any_of(recipe.headers.begin(), recipe.headers.end(), [&](const Recipe::Header& header) {
      return line.find('"' + header.name + '"') != std::string::npos ||
             line.find('<' + header.name + '>') != std::string::npos;
    });
    if (!is_known) return true;
  }
  return recipe.options.find("-include") != std::string::npos;
}

}  // namespace

Splits splits_of(const Recipe& recipe) {
  Splits all = Splits::always;
  if (recipe.origin == ProgramOrigin::linked) {
    if (recipe.inputs.empty()) return Splits::never;
    for (const auto& input : recipe.inputs) all = std::min(all, splits_of(*input));
    return all;
  }
  if (recipe.origin != ProgramOrigin::source) return Splits::never;
  if (has_unknown_headers(recipe)) return Splits::never;
  // PoCL has one of each for every offset of a launch.
  if (has_program_scope_variables(recipe.source, recipe.options)) return Splits::never;
  all = std::min(splits_of_text(recipe.source), splits_of_text(recipe.options));
  for (const auto& [name, header] : recipe.headers) all = std::min(all, splits_of(*header));
  return all;
}

Cutter::Cutter(const command::Launch& launch, Splits splits) {
  if (splits == Splits::never || (splits == Splits::with_local_size && !launch.local) || !launch.global) return;
  rest_.global = {1, 1, 1};
  rest_.items = 1;
  std::size_t most = 0;
  std::size_t all = 1;
  for (cl_uint dimension = 0; dimension < launch.dimensions; ++dimension) {
    const std::size_t global = launch.global[dimension];
    rest_.offset[dimension] = launch.offset ? launch.offset[dimension] : 0;
    rest_.global[dimension] = global;
    rest_.items *= global;
    const std::size_t local = launch.local ? launch.local[dimension] : dimension == 0 ? kUsualGroup : 1;
    // Some drivers refuse work-groups of several sizes, and would do so after the first pieces.
    if (local == 0 || (launch.local && global % local != 0)) return;
    const std::size_t groups = global / local + (global % local != 0 ? 1 : 0);
    all *= groups;
    if (groups <= most) continue;
    most = groups;
    dimension_ = dimension;
    group_ = local;
  }
  left_ = most;
  if (most != 0) rows_ = all / most;
}

std::size_t Cutter::filling(std::size_t groups, std::size_t cores) const {
  const std::size_t step = (cores + rows_ - 1) / rows_;
  return std::min((groups + step - 1) / step * step, left_);
}

Piece Cutter::take(std::size_t groups) {
  const std::size_t taken = std::min(groups, left_);
  std::size_t& length = rest_.global[dimension_];
  const std::uint64_t items = rest_.items / length;  // of one in a row
  Piece piece = rest_;
  piece.global[dimension_] = std::min(taken * group_, length);
  piece.items = items * piece.global[dimension_];
  rest_.offset[dimension_] += piece.global[dimension_];
  length -= piece.global[dimension_];
  rest_.items -= piece.items;
  left_ -= taken;
  return piece;
}

}  // namespace grus
