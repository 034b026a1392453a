// A = L U in place, without pivoting: L's diagonal is all ones and isn't stored, so that L and U fit where A was. One
// round for each tile on the diagonal: decompose it, then the tiles to its right and below it, then take their product
// from all that remains.

// Decomposes the tile on the diagonal.
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void diagonal(global float* matrix, uint n, uint start) {
  local float tile[TILE][TILE];
  const uint column = get_local_id(0);
  const uint row = get_local_id(1);
  const uint at = (start + row) * n + start + column;
  tile[row][column] = matrix[at];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint k = 0; k < TILE - 1; ++k) {
    if (row > k && column == k) tile[row][k] /= tile[k][k];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (row > k && column > k) tile[row][column] -= tile[row][k] * tile[k][column];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  matrix[at] = tile[row][column];
}

// Each group solves two triangular systems with the tile on the diagonal: one half of it for a tile of U in the same
// rows, a column for each item, the other half for a tile of L in the same columns, a row for each item.
kernel __attribute__((reqd_work_group_size(2 * TILE, 1, 1)))
void perimeter(global float* matrix, uint n, uint start) {
  local float corner[TILE][TILE];
  local float right[TILE][TILE];
  local float below[TILE][TILE + 1];  // items walk along rows: each row starts in another bank
  const uint lane = get_local_id(0) % TILE;
  const bool is_right = get_local_id(0) < TILE;
  const uint other = start + (get_group_id(0) + 1) * TILE;
  for (uint row = get_local_id(0) / TILE; row < TILE; row += 2)
    corner[row][lane] = matrix[(start + row) * n + start + lane];
  for (uint row = 0; row < TILE; ++row) {
    if (is_right)
      right[row][lane] = matrix[(start + row) * n + other + lane];
    else
      below[row][lane] = matrix[(other + row) * n + start + lane];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (is_right) {
    for (uint row = 1; row < TILE; ++row) {
      float rest = right[row][lane];
      for (uint k = 0; k < row; ++k) rest -= corner[row][k] * right[k][lane];
      right[row][lane] = rest;
    }
  } else {
    for (uint column = 0; column < TILE; ++column) {
      float rest = below[lane][column];
      for (uint k = 0; k < column; ++k) rest -= below[lane][k] * corner[k][column];
      below[lane][column] = rest / corner[column][column];
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint row = 0; row < TILE; ++row) {
    if (is_right)
      matrix[(start + row) * n + other + lane] = right[row][lane];
    else
      matrix[(other + row) * n + start + lane] = below[row][lane];
  }
}

// Each group takes the product of a tile of L and one of U from a tile to the right of and below both.
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void internal(global float* matrix, uint n, uint start) {
  local float left[TILE][TILE];
  local float above[TILE][TILE];
  const uint column = get_local_id(0);
  const uint row = get_local_id(1);
  const uint to_column = start + TILE + get_global_id(0);
  const uint to_row = start + TILE + get_global_id(1);
  left[row][column] = matrix[to_row * n + start + column];
  above[row][column] = matrix[(start + row) * n + to_column];
  barrier(CLK_LOCAL_MEM_FENCE);
  float sum = 0.0f;
  for (uint k = 0; k < TILE; ++k) sum = fma(left[row][k], above[k][column], sum);
  matrix[to_row * n + to_column] -= sum;
}
