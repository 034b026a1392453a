// Transforms of 512 complex numbers, one by each group of 64 work-items: three passes of transforms of eight numbers in
// registers, with an exchange through local memory between them.
#define POINTS 512
#define ITEMS 64

// Where numbers are during an exchange: eight rows, with gaps so that work-items side by side use different banks.
#define ROW 72
#define EXCHANGE (8 * ROW)

#define INLINED __attribute__((always_inline))  // so that the arrays that functions get are in registers

INLINED float2 multiply(float2 a, float2 b) { return (float2)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
INLINED float2 times_minus_i(float2 a) { return (float2)(a.y, -a.x); }

INLINED void transform_four(float2* a, float2* b, float2* c, float2* d) {
  const float2 sum_even = *a + *c;
  const float2 difference_even = *a - *c;
  const float2 sum_odd = *b + *d;
  const float2 difference_odd = times_minus_i(*b - *d);
  *a = sum_even + sum_odd;
  *b = difference_even + difference_odd;
  *c = sum_even - sum_odd;
  *d = difference_even - difference_odd;
}

INLINED void transform_eight(float2* a) {
  const float half_root = 0.70710678118654752f;
  float2 even[4];
  float2 odd[4];
#pragma unroll
  for (uint i = 0; i < 4; ++i) {
    even[i] = a[i] + a[i + 4];
    odd[i] = a[i] - a[i + 4];
  }
  odd[1] = half_root * (float2)(odd[1].x + odd[1].y, odd[1].y - odd[1].x);
  odd[2] = times_minus_i(odd[2]);
  odd[3] = half_root * (float2)(odd[3].y - odd[3].x, -odd[3].x - odd[3].y);
  transform_four(&even[0], &even[1], &even[2], &even[3]);
  transform_four(&odd[0], &odd[1], &odd[2], &odd[3]);
#pragma unroll
  for (uint i = 0; i < 4; ++i) {
    a[2 * i] = even[i];
    a[2 * i + 1] = odd[i];
  }
}

// By the powers 0 to 7 of a root of unity.
INLINED void rotate_eight(float2* a, float2 root) {
  const float2 second = multiply(root, root);
  const float2 third = multiply(second, root);
  const float2 fourth = multiply(second, second);
  a[1] = multiply(a[1], root);
  a[2] = multiply(a[2], second);
  a[3] = multiply(a[3], third);
  a[4] = multiply(a[4], fourth);
  a[5] = multiply(a[5], multiply(fourth, root));
  a[6] = multiply(a[6], multiply(fourth, second));
  a[7] = multiply(a[7], multiply(fourth, third));
}

// Each work-item comes with the numbers item, item + 64, ... and leaves with the results of the same places.
INLINED void transform(float2* a, global const float2* roots, local float* real, local float* imaginary) {
  const uint item = get_local_id(0);
  const uint high = item / 8;
  const uint low = item % 8;
  transform_eight(a);
  rotate_eight(a, roots[item]);
#pragma unroll
  for (uint i = 0; i < 8; ++i) {
    real[i * ROW + item] = a[i].x;
    imaginary[i * ROW + item] = a[i].y;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (uint i = 0; i < 8; ++i) {
    const uint place = high * ROW + i * 8 + low;
    a[i] = (float2)(real[place], imaginary[place]);
  }
  transform_eight(a);
  rotate_eight(a, roots[low * 8]);
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (uint i = 0; i < 8; ++i) {
    const uint place = i * ROW + high * 9 + low;
    real[place] = a[i].x;
    imaginary[place] = a[i].y;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (uint i = 0; i < 8; ++i) {
    const uint place = high * ROW + low * 9 + i;
    a[i] = (float2)(real[place], imaginary[place]);
  }
  transform_eight(a);
}

// roots[i] is exp(-2 pi i / 512).
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void forward(global const float2* from, global float2* to, global const float2* roots) {
  local float real[EXCHANGE];
  local float imaginary[EXCHANGE];
  const uint start = get_group_id(0) * POINTS + get_local_id(0);
  float2 a[8];
#pragma unroll
  for (uint i = 0; i < 8; ++i) a[i] = from[start + i * ITEMS];
  transform(a, roots, real, imaginary);
#pragma unroll
  for (uint i = 0; i < 8; ++i) to[start + i * ITEMS] = a[i];
}

// Swapping real and imaginary parts before and after makes a forward transform the way back.
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void backward(global const float2* from, global float2* to, global const float2* roots) {
  local float real[EXCHANGE];
  local float imaginary[EXCHANGE];
  const uint start = get_group_id(0) * POINTS + get_local_id(0);
  float2 a[8];
#pragma unroll
  for (uint i = 0; i < 8; ++i) a[i] = from[start + i * ITEMS].yx;
  transform(a, roots, real, imaginary);
#pragma unroll
  for (uint i = 0; i < 8; ++i) to[start + i * ITEMS] = a[i].yx * (1.0f / POINTS);
}
