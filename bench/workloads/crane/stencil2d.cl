// One step of a nine-point stencil on a square grid. Each group brings its tile and the cells around it to local memory
// and computes WIDTH by HEIGHT cells; a work-item has one column and every GROUP_ROWS-th row. Cells on the edge of the
// grid keep their values.
kernel __attribute__((reqd_work_group_size(WIDTH, GROUP_ROWS, 1)))
void advance(global const float* from, global float* to, uint n, float center, float side, float corner) {
  local float tile[HEIGHT + 2][WIDTH + 2];
  const uint x = get_local_id(0);
  const uint left = get_group_id(0) * WIDTH;
  const uint top = get_group_id(1) * HEIGHT;
  for (uint row = get_local_id(1); row < HEIGHT + 2; row += GROUP_ROWS) {
    // Beyond the edge, anything will do: no cell on the edge is computed.
    const uint from_row = min(max(top + row, 1u) - 1, n - 1) * n;
    tile[row][x + 1] = from[from_row + left + x];
    if (x == 0) tile[row][0] = from[from_row + max(left, 1u) - 1];
    if (x == WIDTH - 1) tile[row][WIDTH + 1] = from[from_row + min(left + WIDTH, n - 1)];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint column = left + x;
  for (uint y = get_local_id(1); y < HEIGHT; y += GROUP_ROWS) {
    const uint row = top + y;
    float value = tile[y + 1][x + 1];
    if (row != 0 && row != n - 1 && column != 0 && column != n - 1) {
      const float sides = tile[y][x + 1] + tile[y + 1][x] + tile[y + 1][x + 2] + tile[y + 2][x + 1];
      const float corners = tile[y][x] + tile[y][x + 2] + tile[y + 2][x] + tile[y + 2][x + 2];
      value = center * value + side * sides + corner * corners;
    }
    to[row * n + column] = value;
  }
}
