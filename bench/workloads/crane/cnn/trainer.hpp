// The network on the device: its buffers and launches.
#pragma once

#include "crane/cnn/network.hpp"
#include "frame/workload.hpp"

namespace cnn {

class Trainer {
 public:
  Trainer(workload::Frame& frame, const char* kernels, const Network& network, size_t images);

  void send(const Batch& batch);
  // Of the first so many images: losses and what each layer gives.
  void forward(size_t images);
  // After forward of as many: the gradients.
  void backward(size_t images);
  void update(float rate, float momentum);

  std::vector<float> parameters() { return fetch(parameters_, network_.parameter_count); }
  std::vector<float> gradients() { return fetch(gradients_, network_.parameter_count); }
  std::vector<float> losses(size_t images) { return fetch(losses_, images); }
  // One channel of what a convolution took in, and of the gradient of what it gave, for the first so many images.
  std::vector<float> input_channel(size_t layer, size_t channel, size_t images) const;
  std::vector<float> gradient_channel(size_t layer, size_t channel, size_t images) const;

 private:
  using Buffer = workload::Buffer;
  struct Layer {
    Buffer output;
    Buffer pooled;  // only where the layer is
    Buffer output_gradient;
    Buffer pooled_gradient;
  };
  const Buffer& input_of(size_t layer) const;
  const Buffer& result_of(size_t layer) const;
  const Buffer& result_gradient_of(size_t layer) const;
  void convolution_backward(size_t layer, size_t images);
  std::vector<float> fetch(const Buffer& buffer, size_t count);
  std::vector<float> channel_of(const Buffer& pictures, const Convolution& shape, size_t channels, size_t channel,
                                size_t images) const;

  workload::Frame& frame_;
  const Network& network_;
  workload::Kernel convolve_;
  workload::Kernel convolve_back_;
  workload::Kernel parameter_gradient_;
  workload::Kernel add_parts_;
  workload::Kernel pool_;
  workload::Kernel pool_back_;
  workload::Kernel classify_;
  workload::Kernel classify_back_;
  workload::Kernel classify_parameter_gradient_;
  workload::Kernel update_;
  Buffer pictures_;
  Buffer labels_;
  Buffer losses_;
  Buffer score_gradient_;
  Buffer parameters_;
  Buffer velocities_;
  Buffer gradients_;
  Buffer parts_;
  std::vector<Layer> layers_;
};

}  // namespace cnn
