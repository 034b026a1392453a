// To check a product of matrices at a cost of n squared: C x = A (B x) for a random vector x, or C isn't A B.
#pragma once

#include <vector>

#include "frame/random.hpp"

namespace workload {

// Weights of either sign and of different sizes: equal errors in neighbouring elements don't cancel.
inline std::vector<double> random_weights(size_t count) {
  Random random{2};
  std::vector<double> weights(count);
  for (double& value : weights) value = (random.below(2) == 0 ? 1.0 : -1.0) * random.between(0.5F, 1.5F);
  return weights;
}

// A square matrix, row by row.
inline std::vector<double> times(const std::vector<float>& matrix, const std::vector<double>& vector) {
  const size_t n = vector.size();
  std::vector<double> result(n);
  for (size_t row = 0; row < n; ++row) {
    for (size_t column = 0; column < n; ++column) result[row] += matrix[row * n + column] * vector[column];
  }
  return result;
}

}  // namespace workload
