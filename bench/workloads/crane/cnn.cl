// Training of a convolutional network. Pictures lie image by image, channel by channel, row by row; their sides are
// powers of two and given as the exponent, `shift`. A position counts pixels over all images of a batch.
//
// A layer's parameters are a matrix: a row for each channel of the output, with the nine weights for each channel of
// the input and, last, the constant. So each of the three passes of a convolution is a matrix product, computed by
// groups of 16 by 16 work items, in tiles of 16 rows by 64 columns, four columns for each work item. All sums are made
// in an order that doesn't depend on timing.
#define TILE 16
#define PER_ITEM 4
#define WIDE (TILE * PER_ITEM)

// A pixel of one of the channels, moved by one of the nine places of a 3 by 3 neighbourhood; `from` counts places
// channel by channel. Outside the picture and beyond the last position all is zero. It reads in any case, from within
// the picture, and then decides: work items don't part ways, and compilers for CPUs can make vectors of them.
float neighbour(global const float* pictures, uint channels, uint from, uint position, uint positions, uint shift) {
  const int side = 1 << shift;
  const uint channel = min(from / 9, channels - 1);
  const int x = (int)(position & (side - 1)) + (int)(from % 3) - 1;
  const int y = (int)((position >> shift) & (side - 1)) + (int)(from % 9 / 3) - 1;
  const uint image = min(position, positions - 1) >> (2 * shift);
  const float value = pictures[((image * channels + channel) << (2 * shift)) + (clamp(y, 0, side - 1) << shift) +
                               clamp(x, 0, side - 1)];
  const bool inside = x >= 0 && y >= 0 && x < side && y < side && position < positions && from < channels * 9;
  return inside ? value : 0.0f;
}

// Where a channel has the pixel at a position.
uint place_of(uint channels, uint channel, uint position, uint shift) {
  const uint image = position >> (2 * shift);
  return ((image * channels + channel) << (2 * shift)) + (position & ((1 << (2 * shift)) - 1));
}

// output = parameters x neighbourhoods of the input, cut off below zero.
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void convolve(global const float* parameters, uint first_parameter, global const float* input, global float* output,
              uint inputs, uint outputs, uint shift, uint positions) {
  local float rows[TILE][TILE];
  local float4 columns[TILE][TILE];
  const uint column = get_local_id(0);
  const uint row = get_local_id(1);
  const uint channel = get_global_id(1);
  const uint first_position = get_group_id(0) * WIDE;
  const uint length = inputs * 9 + 1;
  float4 sums = 0.0f;
  for (uint start = 0; start < length; start += TILE) {
    const uint k = start + column;
    rows[row][column] =
        channel < outputs && k < length ? parameters[first_parameter + channel * length + k] : 0.0f;
    const uint from = start + row;
    for (uint j = 0; j < PER_ITEM; ++j) {
      const float value = neighbour(input, inputs, from, first_position + column + TILE * j, positions, shift);
      ((local float*)columns[row])[column + TILE * j] = from == length - 1 ? 1.0f : value;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < TILE; ++i) sums = fma((float4)(rows[row][i]), columns[i][column], sums);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  // Four positions in a row are four pixels in a row: no side is smaller.
  const uint position = first_position + PER_ITEM * column;
  if (channel < outputs && position < positions)
    vstore4(fmax(sums, 0.0f), 0, output + place_of(outputs, channel, position, shift));
}

// The gradient of the input, from that of the output: a convolution with the weights the other way round. Where the
// input was cut off, it has none.
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void convolve_back(global const float* parameters, uint first_parameter, global const float* output_gradient,
                   global const float* input, global float* input_gradient, uint inputs, uint outputs, uint shift,
                   uint positions) {
  local float rows[TILE][TILE];
  local float4 columns[TILE][TILE];
  const uint column = get_local_id(0);
  const uint row = get_local_id(1);
  const uint channel = get_global_id(1);
  const uint first_position = get_group_id(0) * WIDE;
  const uint length = outputs * 9;
  float4 sums = 0.0f;
  for (uint start = 0; start < length; start += TILE) {
    const uint k = start + column;
    rows[row][column] = channel < inputs && k < length
                            ? parameters[first_parameter + k / 9 * (inputs * 9 + 1) + channel * 9 + 8 - k % 9]
                            : 0.0f;
    const uint from = start + row;
    for (uint j = 0; j < PER_ITEM; ++j) {
      ((local float*)columns[row])[column + TILE * j] =
          neighbour(output_gradient, outputs, from, first_position + column + TILE * j, positions, shift);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < TILE; ++i) sums = fma((float4)(rows[row][i]), columns[i][column], sums);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const uint position = first_position + PER_ITEM * column;
  if (channel >= inputs || position >= positions) return;
  const uint to = place_of(inputs, channel, position, shift);
  vstore4(select((float4)(0.0f), sums, vload4(0, input + to) > 0.0f), 0, input_gradient + to);
}

// The gradient of the parameters: few sums, each over all positions. Each part of the batch makes its own; add_parts
// adds them.
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void parameter_gradient(global const float* output_gradient, global const float* input, global float* parts,
                        uint inputs, uint outputs, uint shift, uint positions, uint positions_per_part) {
  local float rows[TILE][TILE];
  local float4 columns[TILE][TILE + 1];  // one more, or the items that store would meet in a memory bank
  const uint column = get_local_id(0);
  const uint row = get_local_id(1);
  const uint channel = get_global_id(1);
  const uint first_weight = get_group_id(0) * WIDE;
  const uint length = inputs * 9 + 1;
  const uint part = get_group_id(2);
  const uint end = min((part + 1) * positions_per_part, positions);
  float4 sums = 0.0f;
  for (uint start = part * positions_per_part; start < end; start += TILE) {
    const uint position = start + column;
    rows[row][column] = channel < outputs && position < end
                            ? output_gradient[place_of(outputs, channel, position, shift)]
                            : 0.0f;
    for (uint j = 0; j < PER_ITEM; ++j) {
      const uint weight = first_weight + row + TILE * j;
      const float value = neighbour(input, inputs, weight, position, end, shift);
      ((local float*)columns[column])[row + TILE * j] = weight == length - 1 ? 1.0f : value;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < TILE; ++i) sums = fma((float4)(rows[row][i]), columns[i][column], sums);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float in_order[PER_ITEM] = {sums.x, sums.y, sums.z, sums.w};
  for (uint j = 0; j < PER_ITEM; ++j) {
    const uint weight = first_weight + PER_ITEM * column + j;
    if (channel < outputs && weight < length) parts[(part * outputs + channel) * length + weight] = in_order[j];
  }
}

kernel void add_parts(global const float* parts, global float* gradients, uint first_parameter, uint count,
                      uint part_count) {
  const uint i = get_global_id(0);
  float sum = 0.0f;
  for (uint part = 0; part < part_count; ++part) sum += parts[part * count + i];
  gradients[first_parameter + i] = sum;
}

// The largest of each two by two pixels. `shift` is that of the smaller picture.
kernel void pool(global const float* input, global float* output, uint shift) {
  const size_t to = get_global_id(0);
  const size_t plane = to >> (2 * shift);
  const size_t x = to & ((1 << shift) - 1);
  const size_t y = (to >> shift) & ((1 << shift) - 1);
  global const float* from = input + (plane << (2 * shift + 2)) + (y << (shift + 2)) + 2 * x;
  const uint width = 2u << shift;
  output[to] = fmax(fmax(from[0], from[1]), fmax(from[width], from[width + 1]));
}

// To the first of the four that was the largest.
kernel void pool_back(global const float* input, global const float* output, global const float* output_gradient,
                      global float* input_gradient, uint shift) {
  const size_t at = get_global_id(0);
  const size_t plane = at >> (2 * shift);
  const size_t x = at & ((1 << shift) - 1);
  const size_t y = (at >> shift) & ((1 << shift) - 1);
  const size_t corner = (plane << (2 * shift + 2)) + (y << (shift + 2)) + 2 * x;
  const uint width = 2u << shift;
  bool found = false;
  for (uint i = 0; i < 4; ++i) {
    const size_t to = corner + (i / 2) * width + i % 2;
    const bool here = !found && input[to] == output[at];
    input_gradient[to] = here ? output_gradient[at] : 0.0f;
    found = found || here;
  }
}

// The last layer and the loss, a group for each image: how likely each class is, minus the logarithm for the right one,
// and the gradient of that.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void classify(global const float* parameters, uint first_parameter, global const float* features,
              global const uint* labels, global float* score_gradient, global float* losses, uint feature_count,
              float scale) {
  local float sums[CLASSES][64];
  const uint item = get_local_id(0);
  const uint image = get_group_id(0);
  for (uint kind = 0; kind < CLASSES; ++kind) {
    global const float* weights = parameters + first_parameter + kind * (feature_count + 1);
    float sum = item == 0 ? weights[feature_count] : 0.0f;
    for (uint i = item; i < feature_count; i += 64)
      sum = fma(weights[i], features[(size_t)image * feature_count + i], sum);
    sums[kind][item] = sum;
  }
  for (uint half_size = 32; half_size != 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint kind = 0; kind < CLASSES && item < half_size; ++kind)
      sums[kind][item] += sums[kind][item + half_size];
  }
  if (item != 0) return;
  float largest = sums[0][0];
  for (uint kind = 1; kind < CLASSES; ++kind) largest = fmax(largest, sums[kind][0]);
  float total = 0.0f;
  for (uint kind = 0; kind < CLASSES; ++kind) total += exp(sums[kind][0] - largest);
  const uint label = labels[image];
  losses[image] = log(total) + largest - sums[label][0];
  for (uint kind = 0; kind < CLASSES; ++kind) {
    const float likely = exp(sums[kind][0] - largest) / total;
    score_gradient[image * CLASSES + kind] = scale * (likely - (kind == label ? 1.0f : 0.0f));
  }
}

kernel void classify_back(global const float* parameters, uint first_parameter, global const float* score_gradient,
                          global const float* features, global float* feature_gradient) {
  const uint feature = get_global_id(0);
  const uint image = get_global_id(1);
  const uint feature_count = get_global_size(0);
  float sum = 0.0f;
  for (uint kind = 0; kind < CLASSES; ++kind)
    sum = fma(parameters[first_parameter + kind * (feature_count + 1) + feature],
              score_gradient[image * CLASSES + kind], sum);
  const size_t to = (size_t)image * feature_count + feature;
  feature_gradient[to] = features[to] > 0.0f ? sum : 0.0f;
}

kernel void classify_parameter_gradient(global const float* score_gradient, global const float* features,
                                        global float* gradients, uint first_parameter, uint images) {
  const uint feature = get_global_id(0);
  const uint kind = get_global_id(1);
  const uint feature_count = get_global_size(0) - 1;
  float sum = 0.0f;
  for (uint image = 0; image < images; ++image)
    sum = fma(score_gradient[image * CLASSES + kind],
              feature < feature_count ? features[(size_t)image * feature_count + feature] : 1.0f, sum);
  gradients[first_parameter + kind * (feature_count + 1) + feature] = sum;
}

kernel void update(global float* parameters, global float* velocities, global const float* gradients, float rate,
                   float momentum) {
  const uint i = get_global_id(0);
  const float velocity = fma(momentum, velocities[i], gradients[i]);
  velocities[i] = velocity;
  parameters[i] = fma(-rate, velocity, parameters[i]);
}
