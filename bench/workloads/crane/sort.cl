// One pass of a radix sort, by four bits: counts of each digit in every group's share, their prefix sums, and the move
// of the keys. A share is some chunks, of which a work-item has KEYS keys side by side.
#define DIGITS 16
#define KEYS 8
#define CHUNK (KEYS * GROUP)
#define LANES (GROUP / DIGITS)

// A gap after each sixteen counts, so that work-items that each go through sixteen of them use different banks.
#define PLACE(i) ((i) + (i) / DIGITS)

uint digit_of(uint key, uint shift) { return key >> shift & (DIGITS - 1); }

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

// counts[digit][group]: their prefix sums are where each group's keys of each digit go.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void count_digits(global const uint4* keys, uint chunks, uint chunks_in_share, uint shift, global uint* counts) {
  local uint columns[DIGITS][GROUP];  // one for each work-item: no atomic operations
  const uint item = get_local_id(0);
#pragma unroll
  for (uint digit = 0; digit < DIGITS; ++digit) columns[digit][item] = 0;
  const uint first = get_group_id(0) * chunks_in_share;
  const uint end = min(first + chunks_in_share, chunks);
  for (uint i = first * (CHUNK / 4) + item; i < end * (CHUNK / 4); i += GROUP) {
    const uint4 four = keys[i];
    ++columns[digit_of(four.x, shift)][item];
    ++columns[digit_of(four.y, shift)][item];
    ++columns[digit_of(four.z, shift)][item];
    ++columns[digit_of(four.w, shift)][item];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint digit = item / LANES;
  const uint lane = item % LANES;
  uint sum = 0;
  for (uint i = lane; i < GROUP; i += LANES) sum += columns[digit][i];
  columns[digit][lane] = sum;  // nobody else has read it
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane == 0) {
    for (uint i = 1; i < LANES; ++i) sum += columns[digit][i];
    counts[digit * get_num_groups(0) + get_group_id(0)] = sum;
  }
}

// By one group; `fours` is a multiple of its size.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void scan_counts(global uint4* counts, uint fours) {
  local uint sums[2][2 * GROUP];
  uint carry = 0;
  for (uint start = 0; start < fours; start += GROUP) {
    const uint4 values = counts[start + get_local_id(0)];
    const uint first_two = values.x + values.y;
    uint total;
    const uint before = carry + scan_group(first_two + values.z + values.w, &total, sums);
    counts[start + get_local_id(0)] = before + (uint4)(0, values.x, first_two, first_two + values.z);
    carry += total;
  }
}

// Each chunk is first put in order in local memory, so that keys that go side by side are written together.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void move_keys(global const uint4* from, global uint* to, uint chunks, uint chunks_in_share, uint shift,
               global const uint* offsets) {
  local uint counts[PLACE(DIGITS * GROUP)];  // [digit][work-item]
  local uint sums[2][2 * GROUP];
  local uint ordered[CHUNK];
  local uint starts[DIGITS];  // of each digit's keys in the ordered chunk
  local uint next[DIGITS];    // where the next key of each digit goes
  const uint item = get_local_id(0);
  if (item < DIGITS) next[item] = offsets[item * get_num_groups(0) + get_group_id(0)];
  const uint first = get_group_id(0) * chunks_in_share;
  const uint end = min(first + chunks_in_share, chunks);
  for (uint chunk = first; chunk < end; ++chunk) {
    uint keys[KEYS];
    uint ranks[KEYS];  // among the work-item's own of the same digit
#pragma unroll
    for (uint i = 0; i < KEYS; i += 4) {
      const uint4 four = from[((chunk * GROUP + item) * KEYS + i) / 4];
      keys[i] = four.x;
      keys[i + 1] = four.y;
      keys[i + 2] = four.z;
      keys[i + 3] = four.w;
    }
#pragma unroll
    for (uint digit = 0; digit < DIGITS; ++digit) counts[PLACE(digit * GROUP + item)] = 0;
#pragma unroll
    for (uint i = 0; i < KEYS; ++i) ranks[i] = counts[PLACE(digit_of(keys[i], shift) * GROUP + item)]++;
    barrier(CLK_LOCAL_MEM_FENCE);

    uint sum = 0;
#pragma unroll
    for (uint i = 0; i < DIGITS; ++i) sum += counts[PLACE(item * DIGITS + i)];
    uint total;
    uint before = scan_group(sum, &total, sums);
#pragma unroll
    for (uint i = 0; i < DIGITS; ++i) {
      const uint count = counts[PLACE(item * DIGITS + i)];
      counts[PLACE(item * DIGITS + i)] = before;
      before += count;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

#pragma unroll
    for (uint i = 0; i < KEYS; ++i)
      ordered[counts[PLACE(digit_of(keys[i], shift) * GROUP + item)] + ranks[i]] = keys[i];
    if (item < DIGITS) starts[item] = counts[PLACE(item * GROUP)];
    barrier(CLK_LOCAL_MEM_FENCE);

#pragma unroll
    for (uint i = 0; i < KEYS; ++i) {
      const uint place = i * GROUP + item;
      const uint key = ordered[place];
      const uint digit = digit_of(key, shift);
      to[next[digit] + place - starts[digit]] = key;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < DIGITS) next[item] += (item + 1 < DIGITS ? starts[item + 1] : CHUNK) - starts[item];
  }
}
