// A group for each pair of vectors: each item sums every GROUPth product, four at a time, and the group sums in pairs,
// in the same order always.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void multiply_pairs(global const float4* a, global const float4* b, global float* products, uint length) {
  local float sums[GROUP];
  const uint lane = get_local_id(0);
  const uint first = get_group_id(0) * (length / 4);
  float4 sum = (float4)(0.0f);
  for (uint i = lane; i < length / 4; i += GROUP) sum = fma(a[first + i], b[first + i], sum);
  sums[lane] = sum.x + sum.y + sum.z + sum.w;
  for (uint stride = GROUP / 2; stride > 0; stride /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < stride) sums[lane] += sums[lane + stride];
  }
  if (lane == 0) products[get_group_id(0)] = sums[0];
}
