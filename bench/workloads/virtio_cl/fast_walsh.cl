// The Walsh-Hadamard transform: a butterfly for each bit of the index, in any order of the bits. `from` and `to` may be
// the same buffer: an item reads all that it writes before it writes.

// The transform of four values.
float4 butterflies(float4 v) {
  const float2 sums = v.lo + v.hi;
  const float2 differences = v.lo - v.hi;
  return (float4)(sums.x + sums.y, sums.x - sums.y, differences.x + differences.y, differences.x - differences.y);
}

// Where an item's values begin: its number with `zeros` bits of zero inserted above the bits of stride - 1.
uint spread(uint item, uint stride, uint zeros) {
  const uint below = item & (stride - 1);
  return ((item - below) << zeros) + below;
}

kernel void radix_two(global const float* from, global float* to, uint stride) {
  const uint at = spread(get_global_id(0), stride, 1);
  const float low = from[at];
  const float high = from[at + stride];
  to[at] = low + high;
  to[at + stride] = low - high;
}

// Two bits of the index in one pass over memory.
kernel void radix_four(global const float* from, global float* to, uint stride) {
  const uint at = spread(get_global_id(0), stride, 2);
  const float4 v = butterflies(
      (float4)(from[at], from[at + stride], from[at + 2 * stride], from[at + 3 * stride]));
  to[at] = v.x;
  to[at + stride] = v.y;
  to[at + 2 * stride] = v.z;
  to[at + 3 * stride] = v.w;
}

// All low bits of the index: each group transforms a block in local memory. A block has an odd number of bits.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void blocks(global const float* from, global float* to) {
  local float block[BLOCK];
  const uint first = get_group_id(0) * BLOCK;
  for (uint i = get_local_id(0); i < BLOCK; i += GROUP) block[i] = from[first + i];
  for (uint stride = BLOCK / 4; stride > 1; stride /= 4) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint item = get_local_id(0); item < BLOCK / 4; item += GROUP) {
      const uint at = spread(item, stride, 2);
      const float4 v = butterflies(
          (float4)(block[at], block[at + stride], block[at + 2 * stride], block[at + 3 * stride]));
      block[at] = v.x;
      block[at + stride] = v.y;
      block[at + 2 * stride] = v.z;
      block[at + 3 * stride] = v.w;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  // The last bit goes straight to the result.
  for (uint i = get_local_id(0); i < BLOCK; i += GROUP) {
    const float other = block[i ^ 1];
    to[first + i] = (i & 1) == 0 ? block[i] + other : other - block[i];
  }
}
