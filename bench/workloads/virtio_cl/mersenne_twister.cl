// Many streams of MT19937 (Matsumoto and Nishimura), each with a seed of its own.
#define WORDS 624
#define MIDDLE 397
#define AT_ONCE (WORDS - MIDDLE)  // words that don't depend on each other

// An item for each stream: the words of a seed come one from the other.
kernel void seed_streams(global const uint* seeds, global uint* states) {
  const uint stream = get_global_id(0);
  global uint* state = states + stream * WORDS;
  uint word = seeds[stream];
  state[0] = word;
  for (uint i = 1; i < WORDS; ++i) {
    word = 1812433253u * (word ^ (word >> 30)) + i;
    state[i] = word;
  }
}

uint twist(uint upper, uint lower, uint middle) {
  const uint joined = (upper & 0x80000000u) | (lower & 0x7fffffffu);
  return middle ^ (joined >> 1) ^ ((joined & 1u) == 0 ? 0u : 0x9908b0dfu);
}

uint temper(uint word) {
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

// A group for each stream, with its state in local memory: uniform numbers between 0 and 1, never either. 23 bits and a
// half fit a float: no device rounds.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void generate(global const uint* states, global float* uniform_numbers, uint count) {
  local uint state[WORDS];
  const uint lane = get_local_id(0);
  const uint stream = get_group_id(0);
  global float* to = uniform_numbers + stream * count;
  for (uint i = lane; i < WORDS; i += GROUP) state[i] = states[stream * WORDS + i];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint done = 0; done < count; done += WORDS) {
    for (uint first = 0; first < WORDS; first += AT_ONCE) {
      const uint i = first + lane;
      const bool has_word = lane < AT_ONCE && i < WORDS;
      uint word = 0;
      if (has_word) word = twist(state[i], state[(i + 1) % WORDS], state[(i + MIDDLE) % WORDS]);
      barrier(CLK_LOCAL_MEM_FENCE);
      if (has_word) state[i] = word;
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint i = lane; i < WORDS && done + i < count; i += GROUP)
      to[done + i] = ((float)(temper(state[i]) >> 9) + 0.5f) * 0x1p-23f;
  }
}

// Box and Muller's transformation: a pair of normal numbers from a pair of uniform ones.
kernel void make_normal(global const float2* uniform_numbers, global float2* normal_numbers) {
  const float2 pair = uniform_numbers[get_global_id(0)];
  const float radius = sqrt(-2.0f * log(pair.x));
  const float angle = 2.0f * pair.y;  // in half turns
  normal_numbers[get_global_id(0)] = radius * (float2)(cospi(angle), sinpi(angle));
}
