#include "memory/fingerprint.hpp"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace grus::memory {

Fingerprint fingerprint(std::span<const std::byte> page) {
  const XXH128_hash_t hash = XXH3_128bits(page.data(), page.size());
  return {hash.low64, hash.high64};
}

bool is_zero(std::span<const std::byte> page) {
  return page.empty() || (page[0] == std::byte{0} && std::memcmp(page.data(), page.data() + 1, page.size() - 1) == 0);
}

}  // namespace grus::memory
