// Pages of 1024 words, one group for each: what a word holds follows from its page, its place and the step.
#define PAGE_WORDS 1024
#define EDGE_WORDS 16

uint value_of(uint page, uint word, uint step) {
  uint value = page * PAGE_WORDS + word;
  value = (value ^ (value >> 16)) * 0x7feb352du;
  value = (value ^ (value >> 15)) * 0x846ca68bu;
  return (value ^ (value >> 16)) + step * 0x9e3779b9u;
}

// A buffer whose first page has the number first_page, written from end to end.
kernel void write_all(global uint* pages, uint first_page, uint step) {
  const uint at = get_group_id(0);
  for (uint word = get_local_id(0); word < PAGE_WORDS; word += get_local_size(0))
    pages[(size_t)at * PAGE_WORDS + word] = value_of(first_page + at, word, step);
}

// The pages in `chosen`: twice the number, plus one where the first and the last words stay what they are.
kernel void write_chosen(global uint* pages, uint first_page, global const uint* chosen, uint from, uint count,
                         uint step) {
  if (get_group_id(0) >= count) return;  // a launch has at least one group, and there may be nothing to write
  const uint entry = chosen[from + get_group_id(0)];
  const uint page = entry >> 1;
  const bool keep_edges = (entry & 1) != 0;
  for (uint word = get_local_id(0); word < PAGE_WORDS; word += get_local_size(0)) {
    if (keep_edges && (word < EDGE_WORDS || word >= PAGE_WORDS - EDGE_WORDS)) continue;
    pages[(size_t)(page - first_page) * PAGE_WORDS + word] = value_of(page, word, step);
  }
}
