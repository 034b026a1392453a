// How far each place is from one of them all, as the crow flies on a flat map.
kernel void measure(global const float2* places, global float* distances, uint count, float2 from) {
  const uint index = get_global_id(0);
  if (index >= count) return;
  const float2 apart = places[index] - from;
  distances[index] = sqrt(apart.x * apart.x + apart.y * apart.y);
}
