// Exclusive prefix sums in three steps: each block on its own, the blocks' totals by the same kernel, and the totals'
// prefix sums added to their blocks. An item has four values of a block.

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void scan_blocks(global const uint4* values, global uint4* prefix_sums, global uint* totals) {
  local uint sums[2][GROUP];
  const uint lane = get_local_id(0);
  const uint4 own = values[get_global_id(0)];
  const uint4 before = (uint4)(0, own.x, own.x + own.y, own.x + own.y + own.z);
  const uint total = before.w + own.w;
  uint now = 0;
  sums[now][lane] = total;
  barrier(CLK_LOCAL_MEM_FENCE);
  // Each step doubles how far back a sum reaches; from one array to the other, so that one barrier is enough.
  for (uint reach = 1; reach < GROUP; reach *= 2) {
    const uint back = lane >= reach ? sums[now][lane - reach] : 0;
    sums[1 - now][lane] = sums[now][lane] + back;
    now = 1 - now;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  prefix_sums[get_global_id(0)] = before + (uint4)(sums[now][lane] - total);
  if (lane == GROUP - 1) totals[get_group_id(0)] = sums[now][lane];
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void add_totals(global uint4* prefix_sums, global const uint* prefix_sums_of_totals) {
  prefix_sums[get_global_id(0)] += (uint4)(prefix_sums_of_totals[get_group_id(0)]);
}
