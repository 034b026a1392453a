// What the address sanitizer has to be told about memory that isn't from the heap. In other builds, nothing.
#pragma once

#include <cstddef>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#endif

namespace grus::sanitizer {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsOn = true;
#else
inline constexpr bool kIsOn = false;
#endif

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kKnowsAddresses = true;
// What is pointed to from there isn't leaked. All of it is read when the process ends.
inline void look_for_pointers_in(const void* memory, std::size_t size) { __lsan_register_root_region(memory, size); }
inline void look_no_more_in(const void* memory, std::size_t size) { __lsan_unregister_root_region(memory, size); }
// From here on whoever reads or writes there makes a mistake, and pointers there don't count.
inline void forbid(const void* memory, std::size_t size) { __asan_poison_memory_region(memory, size); }
inline void allow(const void* memory, std::size_t size) { __asan_unpoison_memory_region(memory, size); }
#else
inline constexpr bool kKnowsAddresses = false;
inline void look_for_pointers_in(const void* /*memory*/, std::size_t /*size*/) {}
inline void look_no_more_in(const void* /*memory*/, std::size_t /*size*/) {}
inline void forbid(const void* /*memory*/, std::size_t /*size*/) {}
inline void allow(const void* /*memory*/, std::size_t /*size*/) {}
#endif

}  // namespace grus::sanitizer
