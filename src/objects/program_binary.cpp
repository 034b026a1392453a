#include "objects/program_binary.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace grus {
namespace {

constexpr char kMark[8] = {'G', 'R', 'U', 'S', 'P', 'R', 'O', 'G'};
constexpr std::uint32_t kVersion = 1;
constexpr int kDeepest = 16;  // of recipes within recipes
constexpr std::size_t kHeader = sizeof kMark + sizeof(std::uint64_t);

// Fields are named once, in walk() below; these two do with them what their names say.
class Writer {
 public:
  static constexpr bool kReads = false;
  bool number(auto& value) {
    const auto wide = static_cast<std::uint64_t>(value);
    append(&wide, sizeof wide);
    return true;
  }
  bool blob(auto& value) {
    std::uint64_t size = value.size();
    number(size);
    append(value.data(), value.size());
    return true;
  }
  Bytes bytes;

 private:
  void append(const void* data, std::size_t size) {
    const auto* start = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), start, start + size);
  }
};

class Reader {
 public:
  static constexpr bool kReads = true;
  explicit Reader(std::span<const std::byte> bytes) : bytes_{bytes} {}
  bool number(auto& value) {
    std::uint64_t wide = 0;
    if (bytes_.size() < sizeof wide) return false;
    std::memcpy(&wide, bytes_.data(), sizeof wide);
    bytes_ = bytes_.subspan(sizeof wide);
    value = static_cast<std::remove_reference_t<decltype(value)>>(wide);
    return true;
  }
  bool blob(auto& value) {
    std::uint64_t size = 0;
    if (!number(size) || size > bytes_.size()) return false;
    value.resize(size);
    if (size != 0) std::memcpy(value.data(), bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
    return true;
  }
  std::size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

template <typename Walker, typename T, typename Each>
bool list(Walker& walker, std::vector<T>& items, Each each) {
  std::uint64_t count = items.size();
  if (!walker.number(count)) return false;
  if constexpr (Walker::kReads) {
    if (count > walker.left()) return false;  // every item takes at least a byte
    items.resize(count);
  }
  for (auto& item : items) {
    if (!each(item)) return false;
  }
  return true;
}

template <typename Walker, typename Key, typename Value, typename Each>
bool map(Walker& walker, std::map<Key, Value>& items, Each each) {
  std::vector<std::pair<Key, Value>> flat{items.begin(), items.end()};
  if (!list(walker, flat, each)) return false;
  if constexpr (Walker::kReads) items = {flat.begin(), flat.end()};
  return true;
}

bool walk(auto& walker, Recipe& recipe, int depth);

bool walk_shared(auto& walker, std::shared_ptr<const Recipe>& shared, int depth) {
  Recipe recipe = shared ? *shared : Recipe{};
  if (!walk(walker, recipe, depth)) return false;
  shared = std::make_shared<const Recipe>(std::move(recipe));
  return true;
}

bool walk(auto& walker, Recipe& recipe, int depth) {
  if (depth > kDeepest) return false;
  return walker.number(recipe.origin) && walker.blob(recipe.source) && walker.blob(recipe.il) &&
         walker.blob(recipe.options) && walker.number(recipe.compiled_only) &&
         map(walker, recipe.specialization_constants,
             [&](auto& item) { return walker.number(item.first) && walker.blob(item.second); }) &&
         list(walker, recipe.headers,
              [&](auto& item) { return walker.blob(item.name) && walk_shared(walker, item.recipe, depth + 1); }) &&
         list(walker, recipe.inputs, [&](auto& item) { return walk_shared(walker, item, depth + 1); });
}

bool walk(auto& walker, ArgumentFacts& facts) {
  return walker.number(facts.kind) && walker.number(facts.known) && walker.number(facts.address) &&
         walker.number(facts.access) && walker.number(facts.qualifiers) && walker.blob(facts.type) &&
         walker.blob(facts.name);
}

bool walk(auto& walker, ProgramBinary& binary) {
  return walker.blob(binary.identity) && walker.number(binary.type) && walker.blob(binary.vendor_binary) &&
         walk_shared(walker, binary.recipe, 0) && map(walker, binary.arguments, [&](auto& item) {
           return walker.blob(item.first) &&
                  list(walker, item.second, [&](auto& facts) { return walk(walker, facts); });
         });
}

bool is_sane(const Recipe& recipe) {
  if (recipe.origin > ProgramOrigin::linked) return false;
  for (const auto& header : recipe.headers) {
    if (!is_sane(*header.recipe)) return false;
  }
  for (const auto& input : recipe.inputs) {
    if (!is_sane(*input)) return false;
  }
  return true;
}

}  // namespace

Bytes encode(const ProgramBinary& binary) {
  Writer writer;
  std::uint32_t version = kVersion;
  ProgramBinary copy = binary;
  writer.number(version);
  walk(writer, copy);
  const std::uint64_t sum = XXH3_64bits(writer.bytes.data(), writer.bytes.size());
  Bytes bytes(kHeader);
  std::memcpy(bytes.data(), kMark, sizeof kMark);
  std::memcpy(bytes.data() + sizeof kMark, &sum, sizeof sum);
  bytes.insert(bytes.end(), writer.bytes.begin(), writer.bytes.end());
  return bytes;
}

bool is_encoded(std::span<const std::byte> bytes) {
  return bytes.size() >= kHeader && std::memcmp(bytes.data(), kMark, sizeof kMark) == 0;
}

std::optional<ProgramBinary> decode(std::span<const std::byte> bytes) {
  if (!is_encoded(bytes)) return std::nullopt;
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + sizeof kMark, sizeof sum);
  const auto payload = bytes.subspan(kHeader);
  if (XXH3_64bits(payload.data(), payload.size()) != sum) return std::nullopt;
  Reader reader{payload};
  std::uint32_t version = 0;
  ProgramBinary binary;
  if (!reader.number(version) || version != kVersion || !walk(reader, binary) || !is_sane(*binary.recipe))
    return std::nullopt;
  return binary;
}

}  // namespace grus
