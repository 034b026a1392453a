// What sanitizers have to be told: about memory that isn't from the heap, and about reading on purpose what others
// write meanwhile. In other builds, nothing.
#pragma once

#include <cstddef>
#include <cstring>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#endif

#ifdef __SANITIZE_THREAD__
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
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

// Others may be writing there meanwhile: what is copied is copied again later, if they do.
inline void copy_what_is_written(void* to, const void* from, std::size_t size) {
#ifdef __SANITIZE_THREAD__
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  std::memcpy(to, from, size);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#else
  std::memcpy(to, from, size);
#endif
}

}  // namespace grus::sanitizer
