// From the input layer to the hidden one and back. The weights of an input are beside each other: item (unit, lane) of
// a group reads next to its neighbours.

// What this group's inputs add to each hidden unit. The host sums over the groups.
kernel __attribute__((reqd_work_group_size(HIDDEN, LANES, 1)))
void forward(global const float* inputs, global const float* weights, global float* partial_sums) {
  local float values[LANES * HIDDEN];
  local float sums[LANES][HIDDEN];
  const uint unit = get_local_id(0);
  const uint lane = get_local_id(1);
  const uint first = get_group_id(1) * LANES * HIDDEN;
  values[lane * HIDDEN + unit] = inputs[first + lane * HIDDEN + unit];
  barrier(CLK_LOCAL_MEM_FENCE);
  float sum = 0.0f;
  for (uint input = lane; input < LANES * HIDDEN; input += LANES)
    sum = fma(values[input], weights[(first + input) * HIDDEN + unit], sum);
  sums[lane][unit] = sum;
  for (uint stride = LANES / 2; stride > 0; stride /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < stride) sums[lane][unit] += sums[lane + stride][unit];
  }
  if (lane == 0) partial_sums[get_group_id(1) * HIDDEN + unit] = sums[0][unit];
}

// Moves each weight against its share of the error, and on in the direction of its last change.
kernel __attribute__((reqd_work_group_size(HIDDEN, LANES, 1)))
void adjust(global const float* inputs, global const float* deltas, global float* weights, global float* changes,
            float rate, float momentum) {
  const uint unit = get_global_id(0);
  const uint input = get_global_id(1);
  const uint index = input * HIDDEN + unit;
  const float change = rate * deltas[unit] * inputs[input] + momentum * changes[index];
  weights[index] += change;
  changes[index] = change;
}
