// What parameters stand for, and the bad values that go with it: the words that the table of cases is written in.
#pragma once

#include <climits>
#include <cstdint>
#include <memory>

#include "unit/bad_input/parameter.hpp"

namespace grus::test {

// Arrays that live as long as the table.
template <typename T>
[[gnu::noinline]] const T* keep(std::vector<T> values) {
  static std::deque<std::vector<T>> kept;
  return kept.emplace_back(std::move(values)).data();
}
inline const std::size_t* triple(std::size_t x, std::size_t y, std::size_t z) { return keep<std::size_t>({x, y, z}); }

// --- Handles ---------------------------------------------------------------------------------------------------------

template <Handle T>
[[gnu::noinline]] Parameter<T> handle(T good, Codes codes = invalid(T{})) {
  Parameter<T> parameter{good};
  parameter.but("null", nullptr, codes);
  if constexpr (!std::is_same_v<T, cl_platform_id>)
    parameter.but_made_by(
        "released", [] { return to_word(released(T{})); }, codes);
  for (const NamedHandle& other : one_of_each()) {
    if (other.type != typeid(T)) parameter.but(other.name, static_cast<T>(other.handle), codes);
  }
  parameter.but("a pointer into an object", from_word<T>(to_word(good) + sizeof(void*)), codes);
  parameter.but("an odd pointer", from_word<T>(to_word(good) + 1), codes);
  parameter.but("an object that never was", from_word<T>(to_word(good) + (64 << 20)), codes);
  // Ordinary memory that looks like an object of Grus's to a loader.
  static const std::array<const void*, 64> forged{library().table};
  return parameter.but("forged", from_word<T>(to_word(forged.data())), codes);
}

// A list that holds one valid handle, and null behind it.
template <Handle T>
[[gnu::noinline]] Parameter<const T*> list(const Parameter<T>& element, Codes null_list = CL_INVALID_VALUE) {
  const auto listed = [](const Make& make) -> Make {
    return [make, kept = std::make_shared<std::array<T, 16>>()] {
      (*kept)[0] = from_word<T>(make());
      return to_word(kept->data());
    };
  };
  auto parameter = Parameter<const T*>::made_by(listed(element.values().good));
  for (const auto& bad : element.values().bad)
    parameter.but_made_by("a list with " + bad.what, listed(bad.make), bad.codes);
  return parameter.null(null_list);
}
// How many there are in such a list.
inline Parameter<cl_uint> one_listed(Codes none, Codes too_many) {
  return Parameter<cl_uint>{1}.but("zero", 0, none).but("too many", 16, too_many).but("UINT_MAX", UINT_MAX, too_many);
}

inline auto platform() { return handle(world().platform); }
inline auto device() { return handle(world().device); }
// A device that has to be of the call's context, program or kernel.
inline auto associated_device() { return device().but("of another context", world().sub_device, CL_INVALID_DEVICE); }
inline auto context() { return handle(world().own.context); }
inline auto queue() { return handle(world().own.queue); }
inline auto sampler() { return handle(world().own.sampler); }
inline auto program() { return handle(world().own.program); }
inline auto kernel() { return handle(world().own.kernel); }
inline auto event() { return handle(world().own.event); }
inline auto any_memory() { return handle(world().own.buffer); }
// Memory for a command: of the queue's context.
inline auto buffer(cl_mem good = world().own.buffer) {
  return handle(good)
      .but("an image", world().own.image, CL_INVALID_MEM_OBJECT)
      .but("of another context", world().other.buffer, CL_INVALID_CONTEXT);
}
inline auto image(cl_mem good = world().own.image) {
  return handle(good)
      .but("a buffer", world().own.buffer, CL_INVALID_MEM_OBJECT)
      .but("of another context", world().other.image, CL_INVALID_CONTEXT);
}

// An object with one reference more than before, for a call to release.
template <Handle T>
Parameter<T> retained(Parameter<T> of, cl_int(CL_API_CALL* retain)(T)) {
  of.values().good = [retain, good = of.values().good] {
    retain(from_word<T>(good()));
    return good();
  };
  return of;
}

inline auto wait_count() { return one_listed(CL_INVALID_EVENT_WAIT_LIST, CL_INVALID_EVENT_WAIT_LIST); }
inline auto wait_list() {
  return list(handle(world().own.event, CL_INVALID_EVENT_WAIT_LIST)
                  .but("of another context", world().other.event, CL_INVALID_CONTEXT),
              CL_INVALID_EVENT_WAIT_LIST);
}

// --- Where answers go ------------------------------------------------------------------------------------------------

inline auto event_out() { return Parameter<cl_event*>{&answers.event}.null(CL_SUCCESS); }
inline auto code_out() { return Parameter<cl_int*>{&answers.code}.null(CL_SUCCESS); }
template <typename T = void>
T* memory() {
  return reinterpret_cast<T*>(world().memory.data());
}
// Memory that is read or written: null is refused.
template <typename T = void>
Parameter<T*> needed(Codes codes = CL_INVALID_VALUE) {
  return Parameter<T*>{memory<T>()}.null(codes);
}
template <typename T>
Parameter<T*> optional() {
  return Parameter<T*>{memory<T>() + 4096 / sizeof(T)}.null(CL_SUCCESS);
}

// --- Queries: what is asked for, the room for it, where it goes, its size
// ----------------------------------------------

inline Parameter<cl_uint> query(cl_uint name) {
  return Parameter<cl_uint>{name}
      .but("zero", 0, CL_INVALID_VALUE)
      .but("unknown", name | 0x10000, CL_INVALID_VALUE)
      .but("UINT_MAX", UINT_MAX, CL_INVALID_VALUE);
}
inline Parameter<std::size_t> room() {
  return Parameter<std::size_t>{4096}
      .but("zero", 0, CL_INVALID_VALUE)
      .but("too small", 1, CL_INVALID_VALUE)
      .but("SIZE_MAX", SIZE_MAX, CL_SUCCESS);
}
inline Parameter<void*> answer() { return Parameter<void*>{memory()}.null(CL_SUCCESS); }
inline Parameter<std::size_t*> answer_size() { return optional<std::size_t>(); }

// --- Sizes, offsets and flags
// ------------------------------------------------------------------------------------------

// A part of a buffer: 16 bytes from byte 16.
inline Parameter<std::size_t> offset() {
  return Parameter<std::size_t>{16}
      .but("behind the end", kBufferSize + 16, CL_INVALID_VALUE)
      .but("too near the end", kBufferSize, CL_INVALID_VALUE)
      .but("SIZE_MAX", SIZE_MAX, CL_INVALID_VALUE)
      .but("wrapping around", SIZE_MAX - 15, CL_INVALID_VALUE);
}
inline Parameter<std::size_t> length(Codes zero = {CL_SUCCESS, CL_INVALID_VALUE}) {
  return Parameter<std::size_t>{16}
      .but("zero", 0, zero)
      .but("too long", kBufferSize, CL_INVALID_VALUE)
      .but("SIZE_MAX", SIZE_MAX, CL_INVALID_VALUE)
      .but("wrapping around", SIZE_MAX - 15, CL_INVALID_VALUE);
}

// A rectangle in a buffer.
inline auto rectangle_origin() {
  return Parameter<const std::size_t*>{triple(1, 1, 1)}
      .null(CL_INVALID_VALUE)
      .but("overflowing in x", triple(SIZE_MAX, 1, 1), CL_INVALID_VALUE)
      .but("overflowing in y", triple(1, SIZE_MAX, 1), CL_INVALID_VALUE)
      .but("overflowing in z", triple(1, 1, SIZE_MAX), CL_INVALID_VALUE)
      .but("overflowing when multiplied", triple(0, 0, SIZE_MAX / 8 + 1), CL_INVALID_VALUE);
}
inline auto buffer_origin() {
  return rectangle_origin().but("behind the end", triple(kBufferSize, 1, 1), CL_INVALID_VALUE);
}
inline auto rectangle() {
  return Parameter<const std::size_t*>{triple(4, 2, 2)}
      .null(CL_INVALID_VALUE)
      .but("empty in x", triple(0, 2, 2), CL_INVALID_VALUE)
      .but("empty in y", triple(4, 0, 2), CL_INVALID_VALUE)
      .but("empty in z", triple(4, 2, 0), CL_INVALID_VALUE)
      .but("too large", triple(4, 2, kBufferSize), CL_INVALID_VALUE)
      .but("overflowing in x", triple(SIZE_MAX, 2, 2), CL_INVALID_VALUE)
      .but("overflowing in y", triple(4, SIZE_MAX, 2), CL_INVALID_VALUE)
      .but("overflowing in z", triple(4, 2, SIZE_MAX), CL_INVALID_VALUE)
      .but("overflowing when multiplied", triple(SIZE_MAX / 2 + 1, 2, 2), CL_INVALID_VALUE);
}
inline auto row_pitch() {
  return Parameter<std::size_t>{0}
      .but("too small", 3, CL_INVALID_VALUE)
      .but("SIZE_MAX", SIZE_MAX, CL_INVALID_VALUE)
      .but("overflowing when multiplied", SIZE_MAX / 2 + 1, CL_INVALID_VALUE);
}
inline auto slice_pitch() {
  return Parameter<std::size_t>{0}
      .but("too small", 7, CL_INVALID_VALUE)
      .but("SIZE_MAX", SIZE_MAX, CL_INVALID_VALUE)
      .but("overflowing when multiplied", SIZE_MAX - 3, CL_INVALID_VALUE);
}

// A rectangle in an image.
inline auto image_origin() {
  return Parameter<const std::size_t*>{triple(1, 1, 0)}
      .null(CL_INVALID_VALUE)
      .but("outside in x", triple(kImageSide, 1, 0), CL_INVALID_VALUE)
      .but("outside in y", triple(1, kImageSide, 0), CL_INVALID_VALUE)
      .but("outside in z", triple(1, 1, 1), CL_INVALID_VALUE)
      .but("overflowing in x", triple(SIZE_MAX, 1, 0), CL_INVALID_VALUE)
      .but("overflowing in y", triple(1, SIZE_MAX, 0), CL_INVALID_VALUE)
      .but("overflowing in z", triple(1, 1, SIZE_MAX), CL_INVALID_VALUE);
}
inline auto image_region() {
  return Parameter<const std::size_t*>{triple(2, 2, 1)}
      .null(CL_INVALID_VALUE)
      .but("empty in x", triple(0, 2, 1), CL_INVALID_VALUE)
      .but("empty in y", triple(2, 0, 1), CL_INVALID_VALUE)
      .but("empty in z", triple(2, 2, 0), CL_INVALID_VALUE)
      .but("too wide", triple(kImageSide, 2, 1), CL_INVALID_VALUE)
      .but("too high", triple(2, kImageSide, 1), CL_INVALID_VALUE)
      .but("too deep", triple(2, 2, 2), CL_INVALID_VALUE)
      .but("overflowing in x", triple(SIZE_MAX, 2, 1), CL_INVALID_VALUE)
      .but("overflowing in y", triple(2, SIZE_MAX, 1), CL_INVALID_VALUE)
      .but("overflowing in z", triple(2, 2, SIZE_MAX), CL_INVALID_VALUE);
}

inline auto memory_flags() {
  return Parameter<cl_mem_flags>{CL_MEM_READ_WRITE}
      .but("unknown", cl_mem_flags{1} << 40, CL_INVALID_VALUE)
      .but("contradicting itself", CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, CL_INVALID_VALUE)
      .but("contradicting itself about the host", CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS, CL_INVALID_VALUE)
      .but("contradicting itself about memory", CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, CL_INVALID_VALUE)
      .but("all bits", ~cl_mem_flags{0}, CL_INVALID_VALUE);
}
// With flags that ask for host memory, which isn't there.
inline auto flags_without_host_memory() {
  return memory_flags()
      .but("to use memory", CL_MEM_USE_HOST_PTR, CL_INVALID_HOST_PTR)
      .but("to copy memory", CL_MEM_COPY_HOST_PTR, CL_INVALID_HOST_PTR);
}
inline auto no_host_memory() { return Parameter<void*>{nullptr}.but("given", memory(), CL_INVALID_HOST_PTR); }
inline auto map_flags() {
  return Parameter<cl_map_flags>{CL_MAP_READ}
      .but("unknown", cl_map_flags{1} << 20, CL_INVALID_VALUE)
      .but("contradicting itself", CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, CL_INVALID_VALUE);
}

// --- Callbacks
// -----------------------------------------------------------------------------------------------------------

// Given with user data, so that null is refused by calls to which it is optional, too.
struct AnyCallback {
  template <typename... Args>
  operator Parameter<void(CL_CALLBACK*)(Args...)>() const {
    return Parameter<void(CL_CALLBACK*)(Args...)>{+[](Args...) {}}.null(CL_INVALID_VALUE);
  }
};
inline AnyCallback callback() { return {}; }

}  // namespace grus::test
