// The network again, on the CPU, in double precision and straight from the definitions.
#pragma once

#include "crane/cnn/network.hpp"

namespace cnn {

class Reference {
 public:
  Reference(const Network& network, const std::vector<float>& parameters)
      : network_{network}, parameters_(parameters.begin(), parameters.end()), gradients_(parameters.size()) {}

  // Of one image.
  double loss(const float* picture, std::uint32_t label);
  // The same, and adds `scale` times its gradient to gradients().
  double learn(const float* picture, std::uint32_t label, double scale);
  const std::vector<double>& gradients() const { return gradients_; }

 private:
  using Values = std::vector<double>;
  void convolve(const Convolution& layer, const Values& input, Values& output) const;
  Values convolve_back(const Convolution& layer, const Values& input, const Values& output_gradient);

  const Network& network_;
  Values parameters_;
  Values gradients_;
  // Of the last image: inputs and outputs of each convolution, and how likely each class is.
  std::vector<Values> inputs_;
  std::vector<Values> outputs_;
  Values features_;
  Values likely_;
};

}  // namespace cnn
