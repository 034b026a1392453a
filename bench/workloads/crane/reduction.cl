// A sum in two stages: every group sums its share, then one group sums the groups' sums.

float sum_of_group(float value, local float* sums) {
  const uint item = get_local_id(0);
  sums[item] = value;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint active = GROUP / 2; active != 0; active /= 2) {
    if (item < active) sums[item] += sums[item + active];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  return sums[0];
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void sum_shares(global const float4* values, uint fours, global float* group_sums) {
  local float sums[GROUP];
  float4 sum = (float4)(0.0f);
  for (uint i = get_global_id(0); i < fours; i += get_global_size(0)) sum += values[i];
  const float total = sum_of_group(sum.x + sum.y + sum.z + sum.w, sums);
  if (get_local_id(0) == 0) group_sums[get_group_id(0)] = total;
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void sum_groups(global const float* group_sums, uint groups, global float* result) {
  local float sums[GROUP];
  float sum = 0.0f;
  for (uint i = get_local_id(0); i < groups; i += GROUP) sum += group_sums[i];
  const float total = sum_of_group(sum, sums);
  if (get_local_id(0) == 0) *result = total;
}
