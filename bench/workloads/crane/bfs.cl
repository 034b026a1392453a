// Breadth-first search, a launch for each level and a work-item for each vertex. Those that reach the same vertex at
// once all write the same: the result is the same in any order.
#define UNREACHED 0xffffffffu

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void begin(global uint* levels, global uint* deepest, uint vertices, uint source) {
  const uint vertex = get_global_id(0);
  if (vertex < vertices) levels[vertex] = vertex == source ? 0 : UNREACHED;
  if (vertex == 0) *deepest = 0;
}

// The neighbours of `vertex` are targets[first_edges[vertex]] and on, up to first_edges[vertex + 1].
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void visit_level(global const uint* first_edges, global const uint* targets, global uint* levels,
                 global uint* deepest, uint vertices, uint level) {
  const uint vertex = get_global_id(0);
  if (vertex >= vertices || levels[vertex] != level) return;
  bool reached = false;
  const uint end = first_edges[vertex + 1];
  for (uint edge = first_edges[vertex]; edge < end; ++edge) {
    const uint target = targets[edge];
    if (levels[target] == UNREACHED) {
      levels[target] = level + 1;
      reached = true;
    }
  }
  if (reached) *deepest = level + 1;
}
