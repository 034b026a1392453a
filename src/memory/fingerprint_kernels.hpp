// What a device does about pages, in OpenCL C: tells which have changed, and puts them together. One group of 32 lanes
// for each page of 4 KiB.
#pragma once

#include <cstddef>

namespace grus::memory {

// A fingerprint is 128 bits: two sums, over the lanes, of what each made of its words and of where they are. Every step
// is a bijection of what it takes in, and every word and every lane counts with its place, so nothing can be swapped
// unseen.
inline constexpr std::size_t kDeviceFingerprint = 16;  // bytes
inline constexpr const char* kFingerprintKernels = R"CLC(
#define P1 0x9E3779B185EBCA87UL
#define P2 0xC2B2AE3D27D4EB4FUL
#define P3 0x165667B19E3779F9UL
#define P4 0x85EBCA77C2B2AE63UL
#define P5 0x27D4EB2F165667C5UL
ulong mixed(ulong x) {
  x ^= x >> 33; x *= 0xFF51AFD7ED558CCDUL; x ^= x >> 33; x *= 0xC4CEB9FE1A85EC53UL; return x ^ (x >> 33);
}
__attribute__((reqd_work_group_size(32, 1, 1)))
kernel void fingerprint(global const uint4* from, ulong first_there, global ulong2* sent, ulong first,
                        global uint* changed) {
  local ulong lows[32], highs[32];
  local uint ones[32];
  const uint lane = get_local_id(0), page = get_group_id(0);
  global const uint4* words = from + (first_there + page) * 256;
  const ulong2 before = sent[first + page];
  uint4 loaded[8];  // all at once: memory is far away
  #pragma unroll
  for (uint i = 0; i < 8; ++i) loaded[i] = words[lane + 32 * i];
  ulong a = P4, b = P5;
  uint any = 0;
  #pragma unroll
  for (uint i = 0; i < 8; ++i) {
    const uint4 word = loaded[i];
    const uint next = lane + 32 * i;
    any |= word.x | word.y | word.z | word.w;
    const ulong low = upsample(word.y, word.x), high = upsample(word.w, word.z);
    a = rotate(a ^ (low * P1 + next), 31UL) * P2 + high;
    b = rotate(b ^ (high * P3 + next), 27UL) * P1 + low;
  }
  lows[lane] = mixed(a + (lane + 1) * P3);
  highs[lane] = mixed(b ^ ((lane + 1) * P2));
  ones[lane] = any;
  for (uint other = 16; other != 0; other /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < other) {
      lows[lane] += lows[lane + other];
      highs[lane] += highs[lane + other];
      ones[lane] |= ones[lane + other];
    }
  }
  if (lane != 0) return;
  const ulong2 now = (ulong2)(lows[0], highs[0]);
  if (now.x == before.x && now.y == before.y) return;
  sent[first + page] = now;
  changed[1 + atomic_inc(changed)] = page | (ones[0] == 0 ? 0x80000000u : 0u);
}
kernel void gather(global const uint4* from, ulong first_there, global const uint* pages, global uint4* to) {
  const uint lane = get_local_id(0), place = get_group_id(0);
  for (uint next = lane; next < 256; next += 32)
    to[(ulong)place * 256 + next] = from[(first_there + pages[place]) * 256 + next];
}
kernel void scatter(global const uint4* from, global const uint* pages, global uint4* to, ulong first) {
  const uint lane = get_local_id(0), place = get_group_id(0);
  for (uint next = lane; next < 256; next += 32)
    to[(first + pages[place]) * 256 + next] = from[(ulong)place * 256 + next];
}
)CLC";

}  // namespace grus::memory
