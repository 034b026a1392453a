// a = b + s c.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void triad(global float4* a, global const float4* b, global const float4* c, float s) {
  const uint i = get_global_id(0);
  a[i] = b[i] + s * c[i];
}
