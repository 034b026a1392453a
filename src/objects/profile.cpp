#include "objects/profile.hpp"

#include <CL/cl_ext.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/log.hpp"
#include "objects/features.hpp"

namespace grus {
namespace {

enum class Rule : std::uint8_t {
  at_least,  // the device must have so much or more
  at_most,   // or need no more
  bits,      // all of these
  same,
};

struct Fact {
  cl_device_info query;
  const char* name;
  Rule rule;
  std::uint8_t size;       // of one value
  std::uint8_t count = 1;  // values
};

#define GRUS_FACT(name, rule, type, ...) \
  Fact { name, #name, Rule::rule, sizeof(type), __VA_ARGS__ }
constexpr Fact kFacts[] = {
    GRUS_FACT(CL_DEVICE_ADDRESS_BITS, same, cl_uint, 1),
    GRUS_FACT(CL_DEVICE_ENDIAN_LITTLE, same, cl_bool, 1),
    GRUS_FACT(CL_DEVICE_MAX_MEM_ALLOC_SIZE, at_least, cl_ulong, 1),
    GRUS_FACT(CL_DEVICE_LOCAL_MEM_SIZE, at_least, cl_ulong, 1),
    GRUS_FACT(CL_DEVICE_MAX_WORK_GROUP_SIZE, at_least, std::size_t, 1),
    GRUS_FACT(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, at_least, cl_uint, 1),
    GRUS_FACT(CL_DEVICE_MAX_WORK_ITEM_SIZES, at_least, std::size_t, 3),
    GRUS_FACT(CL_DEVICE_MAX_PARAMETER_SIZE, at_least, std::size_t, 1),
    GRUS_FACT(CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, at_least, cl_ulong, 1),
    GRUS_FACT(CL_DEVICE_MAX_CONSTANT_ARGS, at_least, cl_uint, 1),
    GRUS_FACT(CL_DEVICE_MEM_BASE_ADDR_ALIGN, at_most, cl_uint, 1),
    GRUS_FACT(CL_DEVICE_QUEUE_PROPERTIES, bits, cl_command_queue_properties, 1),
    GRUS_FACT(CL_DEVICE_SINGLE_FP_CONFIG, bits, cl_device_fp_config, 1),
    GRUS_FACT(CL_DEVICE_DOUBLE_FP_CONFIG, bits, cl_device_fp_config, 1),
    GRUS_FACT(CL_DEVICE_HALF_FP_CONFIG, bits, cl_device_fp_config, 1),
    GRUS_FACT(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, at_least, cl_bool, 1),
    GRUS_FACT(CL_DEVICE_IMAGE_SUPPORT, at_least, cl_bool, 1),
    GRUS_FACT(CL_DEVICE_IMAGE2D_MAX_WIDTH, at_least, std::size_t, 1),
    GRUS_FACT(CL_DEVICE_IMAGE2D_MAX_HEIGHT, at_least, std::size_t, 1),
    GRUS_FACT(CL_DEVICE_IMAGE3D_MAX_WIDTH, at_least, std::size_t, 1),
    GRUS_FACT(CL_DEVICE_IMAGE3D_MAX_HEIGHT, at_least, std::size_t, 1),
    GRUS_FACT(CL_DEVICE_IMAGE3D_MAX_DEPTH, at_least, std::size_t, 1),
    GRUS_FACT(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, at_least, std::size_t, 1),
    GRUS_FACT(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, at_least, std::size_t, 1),
    GRUS_FACT(CL_DEVICE_MAX_READ_IMAGE_ARGS, at_least, cl_uint, 1),
    GRUS_FACT(CL_DEVICE_MAX_WRITE_IMAGE_ARGS, at_least, cl_uint, 1),
    GRUS_FACT(CL_DEVICE_MAX_SAMPLERS, at_least, cl_uint, 1),
};
#undef GRUS_FACT
constexpr const char* kExtensions = "CL_DEVICE_EXTENSIONS";

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream{text};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::uint64_t combined(Rule rule, std::uint64_t a, std::uint64_t b) {
  switch (rule) {
    case Rule::at_least:
      return std::min(a, b);
    case Rule::at_most:
      return std::max(a, b);
    case Rule::bits:
      return a & b;
    case Rule::same:
      return a;
  }
  return a;
}

}  // namespace

Profile Profile::of_device(const Ask& ask) {
  Profile profile;
  for (const Fact& fact : kFacts) {
    auto& values = profile.values_[fact.query];
    const auto bytes = ask(fact.query);
    for (std::size_t next = 0; next < fact.count; ++next) {
      std::uint64_t value = 0;
      if (bytes && bytes->size() >= (next + 1) * fact.size)
        std::memcpy(&value, bytes->data() + next * fact.size, fact.size);
      values.push_back(value);
    }
  }
  const auto extensions = ask(CL_DEVICE_EXTENSIONS);
  // Others are never told of.
  if (extensions) profile.extensions_ = words_of(offered_extensions(text_from_bytes(*extensions)));
  return profile;
}

std::string Profile::text() const {
  std::string text;
  for (const Fact& fact : kFacts) {
    const auto known = values_.find(fact.query);
    if (known == values_.end()) continue;
    text += fact.name;
    for (const std::uint64_t value : known->second) text += fmt::format(" {}", value);
    text += '\n';
  }
  text += kExtensions;
  for (const auto& extension : extensions_) text += ' ' + extension;
  return text + '\n';
}

Profile Profile::read(const std::string& path) {
  std::ifstream file{path};
  if (!file) throw std::runtime_error{fmt::format("{}: can't be read", path)};
  Profile profile;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    auto words = words_of(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    const std::string name = words[0];
    words.erase(words.begin());
    if (name == kExtensions) {
      profile.extensions_ = words;
      continue;
    }
    const auto* const fact =
        std::find_if(std::begin(kFacts), std::end(kFacts), [&](const Fact& one) { return one.name == name; });
    if (fact == std::end(kFacts) || words.size() != fact->count)
      throw std::runtime_error{fmt::format("{}:{}: a fact's name and its value are expected", path, number)};
    for (const auto& word : words) {
      char* end = nullptr;
      profile.values_[fact->query].push_back(std::strtoull(word.c_str(), &end, 0));
      if (*end != '\0') throw std::runtime_error{fmt::format("{}:{}: {} is no number", path, number, word)};
    }
  }
  return profile;
}

Profile Profile::in_common_with(const Profile& other) const {
  Profile both;
  for (const Fact& fact : kFacts) {
    const auto ours = values_.find(fact.query);
    const auto theirs = other.values_.find(fact.query);
    if (ours == values_.end() || theirs == other.values_.end()) continue;
    for (std::size_t next = 0; next < ours->second.size(); ++next)
      both.values_[fact.query].push_back(combined(fact.rule, ours->second[next], theirs->second[next]));
  }
  for (const auto& extension : extensions_) {
    if (contains(other.extensions_, extension)) both.extensions_.push_back(extension);
  }
  return both;
}

std::vector<std::string> Profile::missing(const Profile& there) const {
  std::vector<std::string> reasons;
  for (const Fact& fact : kFacts) {
    const auto ours = values_.find(fact.query);
    const auto theirs = there.values_.find(fact.query);
    if (ours == values_.end() || theirs == there.values_.end()) continue;
    for (std::size_t next = 0; next < ours->second.size(); ++next) {
      const std::uint64_t told = ours->second[next];
      const std::uint64_t has = theirs->second[next];
      const bool fits = fact.rule == Rule::same ? told == has : combined(fact.rule, told, has) == told;
      if (!fits) reasons.push_back(fmt::format("{}: the program was told {}, there it is {}", fact.name, told, has));
    }
  }
  for (const auto& extension : extensions_) {
    if (!contains(there.extensions_, extension))
      reasons.push_back(fmt::format("extension {} is missing there", extension));
  }
  return reasons;
}

Result<Bytes> Profile::instead_of(cl_device_info query, Result<Bytes> answer) const {
  if (!answer) return answer;
  if (query == CL_DEVICE_EXTENSIONS) {
    std::string told;
    for (const auto& extension : words_of(text_from_bytes(*answer))) {
      if (contains(extensions_, extension)) told += (told.empty() ? "" : " ") + extension;
    }
    const auto* const bytes = reinterpret_cast<const std::byte*>(told.c_str());
    return Bytes{bytes, bytes + told.size() + 1};
  }
  if (query == CL_DEVICE_EXTENSIONS_WITH_VERSION) {
    auto list = list_from_bytes<cl_name_version>(*answer);
    std::erase_if(list, [&](const cl_name_version& one) { return !contains(extensions_, one.name); });
    const auto* const bytes = reinterpret_cast<const std::byte*>(list.data());
    return Bytes{bytes, bytes + list.size() * sizeof(cl_name_version)};
  }
  const auto known = values_.find(query);
  if (known == values_.end()) return answer;
  const auto* const fact =
      std::find_if(std::begin(kFacts), std::end(kFacts), [&](const Fact& one) { return one.query == query; });
  Bytes bytes = *answer;
  for (std::size_t next = 0; next < known->second.size() && (next + 1) * fact->size <= bytes.size(); ++next) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + next * fact->size, fact->size);
    value = combined(fact->rule, value, known->second[next]);  // never more than it has
    std::memcpy(bytes.data() + next * fact->size, &value, fact->size);
  }
  return bytes;
}

const std::optional<Profile>& profile_to_tell() {
  static const auto& profile = *new std::optional<Profile>{[]() -> std::optional<Profile> {
    const char* const path = std::getenv("GRUS_PROFILE");
    if (!path || !*path) return std::nullopt;
    try {
      return Profile::read(path);
    } catch (const std::exception& error) {
      log::error("profile", "{}; the program is told what its device has", error.what());
      return std::nullopt;
    }
  }()};
  return profile;
}

}  // namespace grus
