// An image convolved with a filter for its rows, and the result with one for its columns; outside it is black. A group
// first brings a tile into local memory, with as much around it as the filter reaches. Each item computes several
// values of the tile, since all that is around it is read twice.
#define TAPS (2 * RADIUS + 1)

kernel __attribute__((reqd_work_group_size(WIDTH, HEIGHT, 1)))
void convolve_rows(global const float* from, global float* to, constant float* filter, int columns) {
  local float tile[HEIGHT][WIDTH * STEPS + 2 * RADIUS];
  const int x = get_local_id(0);
  const int y = get_local_id(1);
  const int first = (int)get_group_id(0) * WIDTH * STEPS;
  const int row = (int)get_global_id(1) * columns;
  for (int i = x; i < WIDTH * STEPS + 2 * RADIUS; i += WIDTH) {
    const int column = first - RADIUS + i;
    tile[y][i] = column >= 0 && column < columns ? from[row + column] : 0.0f;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = 0; step < STEPS; ++step) {
    const int at = step * WIDTH + x;
    float sum = 0.0f;
    for (int tap = 0; tap < TAPS; ++tap) sum = fma(filter[tap], tile[y][at + 2 * RADIUS - tap], sum);
    to[row + first + at] = sum;
  }
}

kernel __attribute__((reqd_work_group_size(WIDTH, HEIGHT, 1)))
void convolve_columns(global const float* from, global float* to, constant float* filter, int columns, int rows) {
  local float tile[HEIGHT * STEPS + 2 * RADIUS][WIDTH];
  const int x = get_local_id(0);
  const int y = get_local_id(1);
  const int first = (int)get_group_id(1) * HEIGHT * STEPS;
  const int column = get_global_id(0);
  for (int i = y; i < HEIGHT * STEPS + 2 * RADIUS; i += HEIGHT) {
    const int row = first - RADIUS + i;
    tile[i][x] = row >= 0 && row < rows ? from[row * columns + column] : 0.0f;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = 0; step < STEPS; ++step) {
    const int at = step * HEIGHT + y;
    float sum = 0.0f;
    for (int tap = 0; tap < TAPS; ++tap) sum = fma(filter[tap], tile[at + 2 * RADIUS - tap][x], sum);
    to[(first + at) * columns + column] = sum;
  }
}
