// out = alpha A B + beta C, square and row by row. A group computes TILE by TILE results, each work-item 8 by 8 of them
// in registers: four rows and four columns in each half of the tile, so that work-items side by side read local memory
// side by side. While one pair of tiles is multiplied, the next comes from global memory.
#define DEPTH 8          // columns of A's tile, rows of B's
#define SIDE (TILE / 8)  // work-items along each side
#define ITEMS (SIDE * SIDE)
#define FOURS (TILE * DEPTH / 4 / ITEMS)  // that a work-item brings of either tile, as float4
#define PITCH (TILE + 4)                  // of A's turned tile: with the gap, stores side by side use different banks

#define INLINED __attribute__((always_inline))  // so that the arrays that functions get are in registers

// A's tile is turned, so that a work-item's four rows are one float4.
struct Tiles {
  float4 a[DEPTH][PITCH / 4];
  float4 b[DEPTH][TILE / 4];
};

struct Fetched {
  float4 a[FOURS];
  float4 b[FOURS];
};

INLINED void fetch(struct Fetched* fetched, global const float4* a, global const float4* b, uint start, uint n) {
  const uint fours_in_row = n / 4;
#pragma unroll
  for (uint i = 0; i < FOURS; ++i) {
    const uint four = get_local_id(0) + i * ITEMS;
    const uint row_a = get_group_id(1) * TILE + four / (DEPTH / 4);
    fetched->a[i] = a[row_a * fours_in_row + start / 4 + four % (DEPTH / 4)];
    const uint row_b = start + four / (TILE / 4);
    fetched->b[i] = b[row_b * fours_in_row + get_group_id(0) * (TILE / 4) + four % (TILE / 4)];
  }
}

INLINED void store(const struct Fetched* fetched, local struct Tiles* tiles) {
  local float* turned = (local float*)tiles->a;
#pragma unroll
  for (uint i = 0; i < FOURS; ++i) {
    const uint four = get_local_id(0) + i * ITEMS;
    const uint row = four / (DEPTH / 4);
    const uint column = four % (DEPTH / 4) * 4;
    turned[(column + 0) * PITCH + row] = fetched->a[i].x;
    turned[(column + 1) * PITCH + row] = fetched->a[i].y;
    turned[(column + 2) * PITCH + row] = fetched->a[i].z;
    turned[(column + 3) * PITCH + row] = fetched->a[i].w;
    tiles->b[four / (TILE / 4)][four % (TILE / 4)] = fetched->b[i];
  }
}

INLINED void add_row(float4* sums, float a, float4 b_left, float4 b_right) {
  sums[0] = mad((float4)(a), b_left, sums[0]);
  sums[1] = mad((float4)(a), b_right, sums[1]);
}

INLINED void add_products(float4 (*sums)[2], local const struct Tiles* tiles) {
  const uint column = get_local_id(0) % SIDE;
  const uint row = get_local_id(0) / SIDE;
#pragma unroll
  for (uint k = 0; k < DEPTH; ++k) {
    const float4 a_top = tiles->a[k][row];
    const float4 a_bottom = tiles->a[k][row + SIDE];
    const float4 b_left = tiles->b[k][column];
    const float4 b_right = tiles->b[k][column + SIDE];
    add_row(sums[0], a_top.x, b_left, b_right);
    add_row(sums[1], a_top.y, b_left, b_right);
    add_row(sums[2], a_top.z, b_left, b_right);
    add_row(sums[3], a_top.w, b_left, b_right);
    add_row(sums[4], a_bottom.x, b_left, b_right);
    add_row(sums[5], a_bottom.y, b_left, b_right);
    add_row(sums[6], a_bottom.z, b_left, b_right);
    add_row(sums[7], a_bottom.w, b_left, b_right);
  }
}

kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void multiply(global const float4* a, global const float4* b, global const float4* c, global float4* out, uint n,
              float alpha, float beta) {
  local struct Tiles tiles[2];
  struct Fetched fetched;
  float4 sums[8][2];
#pragma unroll
  for (uint i = 0; i < 8; ++i) sums[i][0] = sums[i][1] = (float4)(0.0f);

  fetch(&fetched, a, b, 0, n);
  store(&fetched, &tiles[0]);
  barrier(CLK_LOCAL_MEM_FENCE);
  uint now = 0;
  for (uint start = 0; start < n; start += DEPTH) {
    fetch(&fetched, a, b, min(start + DEPTH, n - DEPTH), n);  // the last ones once too often: a branch would cost more
    add_products(sums, &tiles[now]);
    now = 1 - now;
    store(&fetched, &tiles[now]);  // nobody has read these since the last barrier
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  const uint first_row = get_group_id(1) * TILE + get_local_id(0) / SIDE * 4;
  const uint column = get_group_id(0) * (TILE / 4) + get_local_id(0) % SIDE;
#pragma unroll
  for (uint i = 0; i < 8; ++i) {
    const uint row = first_row + i % 4 + i / 4 * (TILE / 2);
    const uint left = row * (n / 4) + column;
    const uint right = left + SIDE;
    out[left] = alpha * sums[i][0] + beta * c[left];
    out[right] = alpha * sums[i][1] + beta * c[right];
  }
}
