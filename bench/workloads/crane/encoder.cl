// One stage of a video encoder: motion search against the picture decoded last, transform and quantisation of what is
// left, and the decoded picture for the next frame. Brightness only, one byte a pixel; all arithmetic in integers.
#define COARSE_REACH 8 /* pixels of the halved picture, each way */
#define COARSE_SIDE (2 * COARSE_REACH + 1)
#define COARSE_WINDOW (8 + 2 * COARSE_REACH)
#define FINE_REACH 2
#define FINE_SIDE (2 * FINE_REACH + 1)
#define FINE_WINDOW (16 + 2 * FINE_REACH)

// A long vector costs bits: it has to save that much difference.
#define VECTOR_COST 2

uint difference(uchar a, uchar b) { return abs_diff(a, b); }

kernel void halve(global const uchar* picture, global uchar* halved, uint width) {
  const uint x = get_global_id(0);
  const uint y = get_global_id(1);
  global const uchar* from = picture + 2 * y * width + 2 * x;
  halved[y * (width / 2) + x] = (from[0] + from[1] + from[width] + from[width + 1] + 2) / 4;
}

// The smallest of a group's keys, in keys[0]. The group's size is a power of two.
void smallest(local uint* keys, uint item) {
  for (uint half_size = get_local_size(0) / 2; half_size != 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_size) keys[item] = min(keys[item], keys[item + half_size]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

// A group searches for one macroblock of 16 by 16, in the halved pictures 8 by 8: each work item tries some of the
// places. The key is the cost and then the place's number, so that the best is unique.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void search_coarse(global const uchar* source, global const uchar* reference, global short2* vectors, int width,
                   int height) {
  local uchar block[8 * 8];
  local uchar window[COARSE_WINDOW * COARSE_WINDOW];
  local uint keys[64];
  const uint item = get_local_id(0);
  const int left = get_group_id(0) * 8;
  const int top = get_group_id(1) * 8;
  block[item] = source[(top + item / 8) * width + left + item % 8];
  for (uint i = item; i < COARSE_WINDOW * COARSE_WINDOW; i += 64) {
    const int x = clamp(left - COARSE_REACH + (int)(i % COARSE_WINDOW), 0, width - 1);
    const int y = clamp(top - COARSE_REACH + (int)(i / COARSE_WINDOW), 0, height - 1);
    window[i] = reference[y * width + x];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint best = UINT_MAX;
  for (uint place = item; place < COARSE_SIDE * COARSE_SIDE; place += 64) {
    const uint x = place % COARSE_SIDE;
    const uint y = place / COARSE_SIDE;
    uint cost = VECTOR_COST * (abs((int)x - COARSE_REACH) + abs((int)y - COARSE_REACH));
    for (uint row = 0; row < 8; ++row) {
      for (uint column = 0; column < 8; ++column)
        cost += difference(block[row * 8 + column], window[(y + row) * COARSE_WINDOW + x + column]);
    }
    best = min(best, cost << 9 | place);
  }
  keys[item] = best;
  smallest(keys, item);
  if (item != 0) return;
  const int place = keys[0] & 511;
  vectors[get_group_id(1) * get_num_groups(0) + get_group_id(0)] =
      (short2)(place % COARSE_SIDE - COARSE_REACH, place / COARSE_SIDE - COARSE_REACH);
}

// Around twice the coarse vector, in the whole pictures. Four work items share a place, four rows of the block each.
kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void search_fine(global const uchar* source, global const uchar* reference, global const short2* coarse,
                 global short2* vectors, int width, int height) {
  local uchar block[16 * 16];
  local uchar window[FINE_WINDOW * FINE_WINDOW];
  local uint parts[128];
  local uint keys[128];
  const uint item = get_local_id(0);
  const uint number = get_group_id(1) * get_num_groups(0) + get_group_id(0);
  const int left = get_group_id(0) * 16;
  const int top = get_group_id(1) * 16;
  const int2 start = 2 * convert_int2(coarse[number]) - FINE_REACH;
  for (uint i = item; i < 16 * 16; i += 128) block[i] = source[(top + i / 16) * width + left + i % 16];
  for (uint i = item; i < FINE_WINDOW * FINE_WINDOW; i += 128) {
    const int x = clamp(left + start.x + (int)(i % FINE_WINDOW), 0, width - 1);
    const int y = clamp(top + start.y + (int)(i / FINE_WINDOW), 0, height - 1);
    window[i] = reference[y * width + x];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const uint place = item / 4;
  uint part = 0;
  if (place < FINE_SIDE * FINE_SIDE) {
    const uint x = place % FINE_SIDE;
    const uint y = place / FINE_SIDE;
    for (uint row = item % 4 * 4; row < item % 4 * 4 + 4; ++row) {
      for (uint column = 0; column < 16; ++column)
        part += difference(block[row * 16 + column], window[(y + row) * FINE_WINDOW + x + column]);
    }
  }
  parts[item] = part;
  barrier(CLK_LOCAL_MEM_FENCE);
  keys[item] = UINT_MAX;
  if (item < FINE_SIDE * FINE_SIDE) {
    const int x = start.x + (int)(item % FINE_SIDE);
    const int y = start.y + (int)(item / FINE_SIDE);
    const uint cost = VECTOR_COST * (abs(x) + abs(y)) + parts[4 * item] + parts[4 * item + 1] + parts[4 * item + 2] +
                      parts[4 * item + 3];
    keys[item] = cost << 5 | item;
  }
  smallest(keys, item);
  if (item != 0) return;
  const int best = keys[0] & 31;
  vectors[number] = convert_short2(start + (int2)(best % FINE_SIDE, best / FINE_SIDE));
}

// The cosine transform in integers: rows nearly orthogonal, of length 2 to the 7.5, so that a picture that went there
// and back in two dimensions is 2 to the 30 times itself.
constant int basis[8][8] = {{64, 64, 64, 64, 64, 64, 64, 64},     {89, 75, 50, 18, -18, -50, -75, -89},
                            {83, 36, -36, -83, -83, -36, 36, 83}, {75, -18, -89, -50, 50, 89, 18, -75},
                            {64, -64, -64, 64, 64, -64, -64, 64}, {50, -89, 18, 75, -75, -18, 89, -50},
                            {36, -83, 83, -36, -36, 83, -83, 36}, {18, -50, 75, -89, 89, -75, 50, -18}};

// A group for each block of 8 by 8. Nothing is rounded between the two dimensions: 32 bits are enough.
kernel __attribute__((reqd_work_group_size(8, 8, 1)))
void transform(global const uchar* source, global const uchar* reference, global const short2* vectors,
               global short* levels, global uchar* decoded, int width, int height) {
  local int first[8][8];
  local int second[8][8];
  const uint column = get_local_id(0);
  const uint row = get_local_id(1);
  const int x = get_global_id(0);
  const int y = get_global_id(1);
  const short2 vector = vectors[y / 16 * (width / 16) + x / 16];
  const int predicted =
      reference[clamp(y + vector.y, 0, height - 1) * width + clamp(x + vector.x, 0, width - 1)];
  first[row][column] = source[y * width + x] - predicted;
  barrier(CLK_LOCAL_MEM_FENCE);
  int sum = 0;
  for (uint i = 0; i < 8; ++i) sum += basis[column][i] * first[row][i];
  second[row][column] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  sum = 0;
  for (uint i = 0; i < 8; ++i) sum += basis[row][i] * second[i][column];

  const int magnitude = ((int)abs(sum) + QUANTISER * (32768 / 3)) / (QUANTISER * 32768);
  const int level = sum < 0 ? -magnitude : magnitude;
  levels[y * width + x] = level;

  first[row][column] = level * QUANTISER;
  barrier(CLK_LOCAL_MEM_FENCE);
  sum = 0;
  for (uint i = 0; i < 8; ++i) sum += basis[i][row] * first[i][column];
  second[row][column] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  sum = 0;
  for (uint i = 0; i < 8; ++i) sum += basis[i][column] * second[row][i];
  decoded[y * width + x] = clamp(predicted + ((sum + 16384) >> 15), 0, 255);
}
