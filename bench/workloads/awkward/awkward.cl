// Small integer kernels whose order of execution shows in the results.

uint mixed(uint value) {
  value = (value ^ (value >> 16)) * 0x7feb352du;
  value = (value ^ (value >> 15)) * 0x846ca68bu;
  return value ^ (value >> 16);
}

kernel void scramble(global uint* data, uint key) {
  const size_t i = get_global_id(0);
  data[i] = mixed(data[i] + key) + (uint)i;
}

kernel void combine(global const uint* a, global const uint* b, global uint* to) {
  const size_t i = get_global_id(0);
  to[i] = rotate(a[i], 7u) + (b[i] ^ 0x9e3779b9u);
}

#ifdef __IMAGE_SUPPORT__
// Pixels moved by (dx, dy); beyond the edge, what the sampler says.
kernel void shift_image(read_only image2d_t from, sampler_t sampler, write_only image2d_t to, int dx, int dy) {
  const int2 at = (int2)(get_global_id(0), get_global_id(1));
  const uint4 pixel = read_imageui(from, sampler, at + (int2)(dx, dy));
  write_imageui(to, at, (pixel + (uint4)(1, 2, 3, 4)) & 255u);
}

// Between pixels, where a sampler that interpolates has to average.
kernel void sample_between(read_only image2d_t from, sampler_t sampler, global float* to) {
  const int2 at = (int2)(get_global_id(0), get_global_id(1));
  to[at.y * get_global_size(0) + at.x] = read_imagef(from, sampler, convert_float2(at) + 1.0f).x;
}
#endif
