// C = A B, square and row by row: each group computes a tile of C from tiles of A and B in local memory.
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void multiply(global const float* a, global const float* b, global float* c, uint n) {
  local float tile_a[TILE][TILE];
  local float tile_b[TILE][TILE];
  const uint column = get_local_id(0);
  const uint row = get_local_id(1);
  const uint to = get_global_id(1) * n + get_global_id(0);
  float sum = 0.0f;
  for (uint start = 0; start < n; start += TILE) {
    tile_a[row][column] = a[get_global_id(1) * n + start + column];
    tile_b[row][column] = b[(start + row) * n + get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = 0; k < TILE; ++k) sum = fma(tile_a[row][k], tile_b[k][column], sum);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[to] = sum;
}
