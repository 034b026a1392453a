// A sparse matrix times a vector, in three ways. In the first two, the entries of `row` are those from starts[row] up
// to starts[row + 1].

// A work-item for each row.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void multiply_rows(global const float* values, global const uint* columns, global const uint* starts,
                   global const float* vector, global float* results, uint rows) {
  const uint row = get_global_id(0);
  if (row >= rows) return;
  float sum = 0.0f;
  const uint end = starts[row + 1];
  for (uint i = starts[row]; i < end; ++i) sum = mad(values[i], vector[columns[i]], sum);
  results[row] = sum;
}

// LANES work-items for each row, which read its entries side by side.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void multiply_rows_together(global const float* values, global const uint* columns, global const uint* starts,
                            global const float* vector, global float* results, uint rows) {
  local float sums[GROUP];
  const uint item = get_local_id(0);
  const uint lane = item % LANES;
  const uint row = get_global_id(0) / LANES;
  float sum = 0.0f;
  if (row < rows) {
    const uint end = starts[row + 1];
    for (uint i = starts[row] + lane; i < end; i += LANES) sum = mad(values[i], vector[columns[i]], sum);
  }
  sums[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint active = LANES / 2; active != 0; active /= 2) {
    if (lane < active) sums[item] += sums[item + active];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (lane == 0 && row < rows) results[row] = sums[item];
}

// ELLPACK: all rows have as many entries as the longest, padded with zeros, and entries of one rank lie side by side.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void multiply_padded(global const float* values, global const uint* columns, uint width, global const float* vector,
                     global float* results, uint rows) {
  const uint row = get_global_id(0);
  if (row >= rows) return;
  float sum = 0.0f;
  for (uint rank = 0; rank < width; ++rank) {
    const uint i = rank * rows + row;
    sum = mad(values[i], vector[columns[i]], sum);
  }
  results[row] = sum;
}
