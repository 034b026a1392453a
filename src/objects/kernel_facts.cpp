#include "objects/kernel_facts.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace grus {
namespace {

// Types that OpenCL C itself defines and that are plain values, with or without a vector length.
bool is_plain_value(std::string_view type) {
  static constexpr std::array<std::string_view, 17> kScalars = {
      "char",  "uchar",  "short", "ushort", "int",  "uint",          "long",           "ulong",       "half",
      "float", "double", "bool",  "size_t", "quad", "unsigned char", "unsigned short", "unsigned int"};
  while (!type.empty() && (std::isdigit(static_cast<unsigned char>(type.back())) != 0)) type.remove_suffix(1);
  return std::find(kScalars.begin(), kScalars.end(), type) != kScalars.end() || type == "unsigned long" ||
         type.starts_with("struct ") || type.starts_with("union ");
}

}  // namespace

ArgumentKind ArgumentFacts::kind_of(const ArgumentFacts& facts) {
  if (!facts.known) return ArgumentKind::unknown;
  if (facts.address == CL_KERNEL_ARG_ADDRESS_LOCAL) return ArgumentKind::local;
  if (facts.type == "sampler_t") return ArgumentKind::sampler;
  if (facts.access != CL_KERNEL_ARG_ACCESS_NONE) return ArgumentKind::image;
  if (facts.type.starts_with("image")) return ArgumentKind::image;
  if (facts.address == CL_KERNEL_ARG_ADDRESS_GLOBAL || facts.address == CL_KERNEL_ARG_ADDRESS_CONSTANT) {
    return ArgumentKind::buffer;
  }
  return is_plain_value(facts.type) ? ArgumentKind::value : ArgumentKind::unknown;
}

}  // namespace grus
