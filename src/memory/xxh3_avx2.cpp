#include "memory/xxh3_avx2.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace grus::memory {

void xxh3_with_avx2(const void* data, std::size_t size, std::uint64_t* low_and_high) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  low_and_high[0] = hash.low64;
  low_and_high[1] = hash.high64;
}

}  // namespace grus::memory
