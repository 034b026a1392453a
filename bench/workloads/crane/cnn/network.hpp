// The network's shape, which the workload and the reference share, and the pictures it learns from.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "frame/random.hpp"

namespace cnn {

inline constexpr size_t kClasses = 10;
inline constexpr size_t kSide = 32;
inline constexpr size_t kColours = 3;
inline constexpr size_t kPicture = kColours * kSide * kSide;

struct Convolution {
  size_t inputs;   // channels
  size_t outputs;  // channels
  unsigned shift;  // the side is two to the power of it
  bool pooled;     // and then halved
  size_t first_parameter;

  size_t side() const { return size_t{1} << shift; }
  size_t pixels() const { return side() * side(); }
  size_t row() const { return inputs * 9 + 1; }  // parameters for a channel of the output
  size_t parameters() const { return outputs * row(); }
};

// Four stages of three convolutions; between the stages pictures are halved.
struct Network {
  std::vector<Convolution> convolutions;
  size_t features;       // what the last layer sees of an image
  size_t first_of_last;  // parameter of the last layer
  size_t parameter_count;

  Network() {
    size_t inputs = kColours;
    size_t parameter = 0;
    unsigned shift = 5;
    for (size_t stage = 0; stage < 4; ++stage) {
      const size_t outputs = std::array<size_t, 4>{16, 32, 64, 64}[stage];
      for (size_t layer = 0; layer < 3; ++layer) {
        convolutions.push_back({inputs, outputs, shift, layer == 2 && stage != 3, parameter});
        parameter += convolutions.back().parameters();
        inputs = outputs;
      }
      if (convolutions.back().pooled) --shift;
    }
    features = inputs << (2 * shift);
    first_of_last = parameter;
    parameter_count = parameter + kClasses * (features + 1);
  }

  // Random, and so spread that signals neither fade nor grow from layer to layer; the last layer begins undecided.
  std::vector<float> initial_parameters() const {
    std::vector<float> parameters(parameter_count);
    workload::Random random{1};
    const auto spread = [&](size_t first, size_t rows, size_t inputs, float bound) {
      for (size_t row = 0; row < rows; ++row) {
        for (size_t i = 0; i < inputs; ++i) parameters[first + row * (inputs + 1) + i] = random.between(-bound, bound);
      }
    };
    for (const auto& layer : convolutions) {
      const size_t inputs = layer.row() - 1;
      spread(layer.first_parameter, layer.outputs, inputs, std::sqrt(6.0F / static_cast<float>(inputs)));
    }
    spread(first_of_last, kClasses, features, 0.1F * std::sqrt(6.0F / static_cast<float>(features)));
    return parameters;
  }
};

struct Batch {
  std::vector<float> pictures;
  std::vector<std::uint32_t> labels;
};

// Each class is a direction of stripes, with colours that lean its way, in noise.
inline Batch make_batch(size_t images, std::uint64_t seed) {
  Batch batch{std::vector<float>(images * kPicture), std::vector<std::uint32_t>(images)};
  workload::Random random{seed};
  for (size_t image = 0; image < images; ++image) {
    const std::uint32_t label = random.below(kClasses);
    batch.labels[image] = label;
    const float angle = std::numbers::pi_v<float> * static_cast<float>(label) / kClasses;
    const float across = std::cos(angle) * 0.8F;
    const float down = std::sin(angle) * 0.8F;
    const float begin = random.between(-1, 1);
    for (size_t colour = 0; colour < kColours; ++colour) {
      const float tint = 0.6F * std::cos(angle * 2 + static_cast<float>(colour) * 2) + random.between(-0.1F, 0.1F);
      for (size_t y = 0; y < kSide; ++y) {
        for (size_t x = 0; x < kSide; ++x)
          batch.pictures[image * kPicture + (colour * kSide + y) * kSide + x] =
              std::sin(begin + across * static_cast<float>(x) + down * static_cast<float>(y)) + tint +
              random.between(-0.3F, 0.3F);
      }
    }
  }
  return batch;
}

}  // namespace cnn
