// Exclusive prefix sums in three kernels: sums of the groups' shares, their prefix sums, and those of each share. A
// share is some chunks, of which a work-item has four values side by side.

// The sum of what the work-items before this one have; `total` gets that of the whole group.
uint scan_group(uint value, uint* total, local uint (*sums)[2 * GROUP]) {
  const uint item = get_local_id(0);
  const uint place = item + GROUP;
  sums[0][item] = sums[1][item] = 0;  // read by those that have nobody so many places before them
  sums[0][place] = value;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint now = 0;
  for (uint distance = 1; distance < GROUP; distance *= 2) {
    sums[1 - now][place] = sums[now][place] + sums[now][place - distance];
    now = 1 - now;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const uint before = sums[now][place - 1];
  *total = sums[now][2 * GROUP - 1];
  barrier(CLK_LOCAL_MEM_FENCE);  // the next scan writes there
  return before;
}

uint4 scan_chunk(uint4 values, uint carry, uint* total, local uint (*sums)[2 * GROUP]) {
  const uint first_two = values.x + values.y;
  const uint before = carry + scan_group(first_two + values.z + values.w, total, sums);
  return before + (uint4)(0, values.x, first_two, first_two + values.z);
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void sum_shares(global const uint4* values, uint chunks, uint chunks_in_share, global uint* share_sums) {
  local uint sums[GROUP];
  const uint item = get_local_id(0);
  const uint first = get_group_id(0) * chunks_in_share;
  const uint end = min(first + chunks_in_share, chunks);
  uint4 sum = (uint4)(0);
  for (uint chunk = first; chunk < end; ++chunk) sum += values[chunk * GROUP + item];
  sums[item] = sum.x + sum.y + sum.z + sum.w;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint active = GROUP / 2; active != 0; active /= 2) {
    if (item < active) sums[item] += sums[item + active];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (item == 0) share_sums[get_group_id(0)] = sums[0];
}

// There are as many shares as values in a chunk.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void scan_sums(global uint4* share_sums) {
  local uint sums[2][2 * GROUP];
  const uint item = get_local_id(0);
  uint total;
  share_sums[item] = scan_chunk(share_sums[item], 0, &total, sums);
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void scan_shares(global const uint4* values, uint chunks, uint chunks_in_share, global const uint* share_sums,
                 global uint4* results) {
  local uint sums[2][2 * GROUP];
  const uint first = get_group_id(0) * chunks_in_share;
  const uint end = min(first + chunks_in_share, chunks);
  uint carry = share_sums[get_group_id(0)];
  for (uint chunk = first; chunk < end; ++chunk) {
    const uint place = chunk * GROUP + get_local_id(0);
    uint total;
    results[place] = scan_chunk(values[place], carry, &total, sums);
    carry += total;
  }
}
