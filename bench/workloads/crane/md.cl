// Lennard-Jones forces, one work-item for each atom. Neighbours of one rank lie side by side, so that work-items side
// by side read them together.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void find_forces(global const float4* positions, global const uint* neighbours, global const uint* counts,
                 global float4* forces, uint atoms, float cutoff_squared) {
  const uint atom = get_global_id(0);
  if (atom >= atoms) return;
  const float4 here = positions[atom];
  const uint count = counts[atom];
  float4 force = (float4)(0.0f);  // and the potential in w
  for (uint rank = 0; rank < count; ++rank) {
    const float4 away = here - positions[neighbours[rank * atoms + atom]];
    const float squared = away.x * away.x + away.y * away.y + away.z * away.z;
    if (squared < cutoff_squared) {
      const float inverse = 1.0f / squared;
      const float sixth = inverse * inverse * inverse;
      const float strength = 24.0f * inverse * sixth * (2.0f * sixth - 1.0f);
      force += (float4)(away.xyz * strength, 2.0f * sixth * (sixth - 1.0f));
    }
  }
  forces[atom] = force;
}
