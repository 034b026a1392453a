#include "executor/splitting.hpp"

#include <algorithm>
#include <string_view>

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
                                         "import",
                                         "__builtin",
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
constexpr std::size_t kMostPieces = 4096;

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
  all = std::min(splits_of_text(recipe.source), splits_of_text(recipe.options));
  for (const auto& [name, header] : recipe.headers) all = std::min(all, splits_of(*header));
  return all;
}

std::vector<Piece> pieces_of(const command::Launch& launch, Splits splits, std::size_t count) {
  if (splits == Splits::never || (splits == Splits::with_local_size && !launch.local) || !launch.global) return {};
  Piece whole;
  whole.global = {1, 1, 1};
  Triple groups{1, 1, 1};
  std::size_t widest = 0;
  whole.items = 1;
  for (cl_uint dimension = 0; dimension < launch.dimensions; ++dimension) {
    whole.offset[dimension] = launch.offset ? launch.offset[dimension] : 0;
    whole.global[dimension] = launch.global[dimension];
    whole.items *= launch.global[dimension];
    const std::size_t local = launch.local ? launch.local[dimension] : dimension == 0 ? kUsualGroup : 1;
    // Some drivers refuse work-groups of several sizes, and would do so after the first pieces.
    if (local == 0 || (launch.local && launch.global[dimension] % local != 0)) return {};
    groups[dimension] = launch.global[dimension] / local + (launch.global[dimension] % local != 0 ? 1 : 0);
    if (groups[dimension] > groups[widest]) widest = dimension;
  }
  const std::size_t local = launch.local ? launch.local[widest] : widest == 0 ? kUsualGroup : 1;
  const std::size_t wanted = std::min({count, groups[widest], kMostPieces});
  if (wanted < 2) return {};
  std::vector<Piece> pieces;
  const std::size_t length = (groups[widest] + wanted - 1) / wanted * local;
  for (std::size_t start = 0; start < whole.global[widest]; start += length) {
    Piece piece = whole;
    piece.offset[widest] += start;
    piece.global[widest] = std::min(length, whole.global[widest] - start);
    piece.items = whole.items / whole.global[widest] * piece.global[widest];
    pieces.push_back(piece);
  }
  return pieces;
}

}  // namespace grus
