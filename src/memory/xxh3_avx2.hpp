// XXH3 with AVX2, for processors that have it: twice as fast as without. Plain types only: nothing else that is
// compiled along with it may be used where there is no AVX2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grus::memory {

void xxh3_with_avx2(const void* data, std::size_t size, std::uint64_t* low_and_high);

}  // namespace grus::memory
