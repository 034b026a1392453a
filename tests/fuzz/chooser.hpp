// Fills structures with values that make sense often enough for a session to get far: ids of few objects, sizes of few
// kinds, short lists. It goes through the same fields() as the wire.
#pragma once

#include <algorithm>

#include "channel/fields.hpp"

namespace grus::fuzz {

class Chooser {
 public:
  explicit Chooser(std::span<const unsigned char> script) : script_{script} {}

  bool is_over() const { return script_.empty(); }
  std::uint8_t byte() {
    if (script_.empty()) return 0;
    const std::uint8_t value = script_.front();
    script_ = script_.subspan(1);
    return value;
  }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    for (; bytes != 0; --bytes) value = value << 8 | byte();
    return value;
  }

  template <typename T>
  T take() {
    T value{};
    get(value);
    return value;
  }
  template <typename... Values>
  void operator()(Values&... values) {
    (get(values), ...);
  }

 private:
  void get(ObjectId& id) {
    const std::uint8_t which = byte();
    id = which == 0xff ? ObjectId{number(4), static_cast<std::uint32_t>(number(3))}
         : which == 0  ? ObjectId{}
                       : ObjectId{which < 0xf0 ? 1U : 2U, which % 8U};
  }
  void get(std::size_t& size) {
    constexpr std::size_t kSizes[] = {0, 1, 2, 3, 4, 8, 16, 64, 128, 129, 256, 4096, 65536, SIZE_MAX, SIZE_MAX / 2 + 1};
    const std::uint8_t which = byte();
    size = which < std::size(kSizes) * 8 ? kSizes[which / 8] : which < 250 ? which - 118U : number(8);
  }
  void get(bool& value) { value = byte() % 2 != 0; }
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, std::size_t>) void get(T& value) {
    const std::uint8_t which = byte();
    value = which < 0xf0 ? static_cast<T>(which) : static_cast<T>(number(sizeof value));
  }
  template <typename T>
  requires std::is_enum_v<T>
  void get(T& value) { value = static_cast<T>(take<std::underlying_type_t<T>>()); }
  template <typename T, std::size_t kSize>
  void get(std::array<T, kSize>& list) {
    for (T& value : list) get(value);
  }
  void get(std::byte& value) { value = std::byte{byte()}; }
  void get(std::string& text) {
    constexpr const char* kTexts[] = {"", "one", "two", "bad"};
    text = kTexts[byte() % std::size(kTexts)];
  }
  template <typename T>
  void get(std::vector<T>& list) {
    list.resize(byte() % 4U);
    for (T& value : list) get(value);
  }
  template <typename Key, typename T>
  void get(std::map<Key, T>& map) {
    for (unsigned left = byte() % 3U; left != 0; --left) get(map[take<Key>()]);
  }
  void get(std::shared_ptr<const Recipe>& recipe) {
    auto chosen = std::make_shared<Recipe>();
    (*this)(chosen->origin, chosen->source, chosen->il, chosen->specialization_constants, chosen->options,
            chosen->compiled_only, chosen->vendor_binaries);
    if (const std::uint8_t more = byte(); more % 4 == 1) {
      chosen->inputs.push_back(take<std::shared_ptr<const Recipe>>());
    } else if (more % 4 == 2) {
      chosen->headers.push_back({"name", take<std::shared_ptr<const Recipe>>()});
    } else if (more % 4 == 3) {
      chosen->fallback = take<std::shared_ptr<const Recipe>>();
    }
    recipe = std::move(chosen);
  }
  void get(Range& range) { (*this)(range.offset, range.size); }
  void get(cl_image_format& format) { (*this)(format.image_channel_order, format.image_channel_data_type); }
  void get(command::Rectangle& r) {
    (*this)(r.buffer_origin, r.host_origin, r.region, r.buffer_row_pitch, r.buffer_slice_pitch, r.host_row_pitch,
            r.host_slice_pitch);
  }
  void get(command::ImageRegion& where) { (*this)(where.origin, where.region); }
  void get(command::Pattern& pattern) {
    pattern.bytes.fill(std::byte{byte()});
    get(pattern.size);
  }
  void get(Argument& argument) {
    (*this)(argument.holds, argument.stamp);
    const Bytes value(take<std::uint8_t>() + 1U);
    argument.value.assign(value.data(), value.size());
    (*this)(argument.local_size, argument.object);
  }
  template <typename T>
  requires std::is_class_v<T>
  void get(T& value) { fields(*this, value); }

  std::span<const unsigned char> script_;
};

}  // namespace grus::fuzz
