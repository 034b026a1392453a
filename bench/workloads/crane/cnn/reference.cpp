#include "crane/cnn/reference.hpp"

#include <algorithm>

namespace cnn {
namespace {

using Values = std::vector<double>;

// Channels with a border of zeros, so that neighbourhoods need no care at the edges.
Values padded(const Values& input, size_t channels, size_t side) {
  const size_t wide = side + 2;
  Values result(channels * wide * wide);
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t y = 0; y < side; ++y)
      std::copy_n(&input[(channel * side + y) * side], side, &result[(channel * wide + y + 1) * wide + 1]);
  }
  return result;
}

Values pooled(const Values& input, size_t channels, size_t side) {
  Values result;
  for (size_t y = 0; y < channels * side; y += 2) {
    for (size_t x = 0; x < side; x += 2) {
      const double* at = &input[y * side + x];
      result.push_back(std::max(std::max(at[0], at[1]), std::max(at[side], at[side + 1])));
    }
  }
  return result;
}

Values pooled_back(const Values& input, const Values& output_gradient, size_t channels, size_t side) {
  Values result(input.size());
  size_t next = 0;
  for (size_t y = 0; y < channels * side; y += 2) {
    for (size_t x = 0; x < side; x += 2) {
      size_t best = y * side + x;
      for (const size_t other : {best + 1, best + side, best + side + 1}) {
        if (input[other] > input[best]) best = other;
      }
      result[best] = output_gradient[next++];
    }
  }
  return result;
}

}  // namespace

void Reference::convolve(const Convolution& layer, const Values& input, Values& output) const {
  const size_t side = layer.side();
  const size_t wide = side + 2;
  const Values around = padded(input, layer.inputs, side);
  output.assign(layer.outputs * layer.pixels(), 0);
  for (size_t to = 0; to < layer.outputs; ++to) {
    const double* weights = &parameters_[layer.first_parameter + to * layer.row()];
    double* plane = &output[to * layer.pixels()];
    std::fill_n(plane, layer.pixels(), weights[layer.row() - 1]);
    for (size_t k = 0; k + 1 < layer.row(); ++k) {
      for (size_t y = 0; y < side; ++y) {
        const double* from = &around[(k / 9 * wide + y + k % 9 / 3) * wide + k % 3];
        for (size_t x = 0; x < side; ++x) plane[y * side + x] += weights[k] * from[x];
      }
    }
  }
  for (double& value : output) value = std::max(value, 0.0);
}

// Each pixel of the output hands its gradient to the weights and to the pixels it was made from.
Reference::Values Reference::convolve_back(const Convolution& layer, const Values& input,
                                           const Values& output_gradient) {
  const size_t side = layer.side();
  const size_t wide = side + 2;
  const Values around = padded(input, layer.inputs, side);
  Values around_gradient(around.size());
  for (size_t to = 0; to < layer.outputs; ++to) {
    const size_t first = layer.first_parameter + to * layer.row();
    const double* plane = &output_gradient[to * layer.pixels()];
    for (size_t k = 0; k + 1 < layer.row(); ++k) {
      double sum = 0;
      for (size_t y = 0; y < side; ++y) {
        const size_t from = (k / 9 * wide + y + k % 9 / 3) * wide + k % 3;
        for (size_t x = 0; x < side; ++x) {
          sum += plane[y * side + x] * around[from + x];
          around_gradient[from + x] += plane[y * side + x] * parameters_[first + k];
        }
      }
      gradients_[first + k] += sum;
    }
    for (size_t i = 0; i < layer.pixels(); ++i) gradients_[first + layer.row() - 1] += plane[i];
  }
  Values input_gradient;
  input_gradient.reserve(input.size());
  for (size_t channel = 0; channel < layer.inputs; ++channel) {
    for (size_t y = 0; y < side; ++y) {
      const double* from = &around_gradient[(channel * wide + y + 1) * wide + 1];
      input_gradient.insert(input_gradient.end(), from, from + side);
    }
  }
  return input_gradient;
}

double Reference::loss(const float* picture, std::uint32_t label) {
  inputs_.clear();
  outputs_.clear();
  Values values(picture, picture + kPicture);
  for (const auto& layer : network_.convolutions) {
    inputs_.push_back(values);
    outputs_.emplace_back();
    convolve(layer, values, outputs_.back());
    values = layer.pooled ? pooled(outputs_.back(), layer.outputs, layer.side()) : outputs_.back();
  }
  features_ = values;
  likely_.assign(kClasses, 0);
  for (size_t kind = 0; kind < kClasses; ++kind) {
    const double* weights = &parameters_[network_.first_of_last + kind * (network_.features + 1)];
    likely_[kind] = weights[network_.features];
    for (size_t i = 0; i < network_.features; ++i) likely_[kind] += weights[i] * features_[i];
  }
  const double largest = *std::max_element(likely_.begin(), likely_.end());
  double total = 0;
  for (double& value : likely_) total += value = std::exp(value - largest);
  for (double& value : likely_) value /= total;
  return -std::log(likely_[label]);
}

double Reference::learn(const float* picture, std::uint32_t label, double scale) {
  const double result = loss(picture, label);
  Values gradient(network_.features);
  for (size_t kind = 0; kind < kClasses; ++kind) {
    const double score = scale * (likely_[kind] - (kind == label ? 1 : 0));
    const size_t first = network_.first_of_last + kind * (network_.features + 1);
    for (size_t i = 0; i < network_.features; ++i) {
      gradient[i] += score * parameters_[first + i];
      gradients_[first + i] += score * features_[i];
    }
    gradients_[first + network_.features] += score;
  }
  for (size_t number = network_.convolutions.size(); number-- > 0;) {
    const auto& layer = network_.convolutions[number];
    if (layer.pooled) gradient = pooled_back(outputs_[number], gradient, layer.outputs, layer.side());
    for (size_t i = 0; i < gradient.size(); ++i) {
      if (outputs_[number][i] <= 0) gradient[i] = 0;
    }
    gradient = convolve_back(layer, inputs_[number], gradient);
  }
  return result;
}

}  // namespace cnn
