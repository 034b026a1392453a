#include "crane/cnn/trainer.hpp"

#include <algorithm>

namespace cnn {
namespace {

using workload::check;
using workload::Phase;

constexpr size_t kTile = 16;
constexpr size_t kWide = 64;
constexpr size_t kMostParts = 16;  // of a batch, in the gradient of a layer's parameters

size_t up_to(size_t size, size_t multiple) { return (size + multiple - 1) / multiple * multiple; }
cl_uint number(size_t value) { return static_cast<cl_uint>(value); }

}  // namespace

Trainer::Trainer(workload::Frame& frame, const char* kernels, const Network& network, size_t images)
    : frame_{frame}, network_{network} {
  frame.build(kernels, "-DCLASSES=" + std::to_string(kClasses));
  convolve_ = frame.kernel("convolve");
  convolve_back_ = frame.kernel("convolve_back");
  parameter_gradient_ = frame.kernel("parameter_gradient");
  add_parts_ = frame.kernel("add_parts");
  pool_ = frame.kernel("pool");
  pool_back_ = frame.kernel("pool_back");
  classify_ = frame.kernel("classify");
  classify_back_ = frame.kernel("classify_back");
  classify_parameter_gradient_ = frame.kernel("classify_parameter_gradient");
  update_ = frame.kernel("update");
  pictures_ = frame.buffer_of<float>(images * kPicture, CL_MEM_READ_ONLY);
  labels_ = frame.buffer_of<cl_uint>(images, CL_MEM_READ_ONLY);
  losses_ = frame.buffer_of<float>(images);
  score_gradient_ = frame.buffer_of<float>(images * kClasses);
  parameters_ = frame.buffer_of<float>(network.parameter_count);
  velocities_ = frame.buffer_of<float>(network.parameter_count);
  gradients_ = frame.buffer_of<float>(network.parameter_count);
  size_t most_parameters = 0;
  for (const auto& shape : network.convolutions) {
    most_parameters = std::max(most_parameters, shape.parameters());
    const size_t values = images * shape.outputs * shape.pixels();
    Layer& layer = layers_.emplace_back();
    layer.output = frame.buffer_of<float>(values);
    layer.output_gradient = frame.buffer_of<float>(values);
    if (!shape.pooled) continue;
    layer.pooled = frame.buffer_of<float>(values / 4);
    layer.pooled_gradient = frame.buffer_of<float>(values / 4);
  }
  parts_ = frame.buffer_of<float>(kMostParts * most_parameters);
  frame.send(parameters_, network.initial_parameters());
  frame.send(velocities_, std::vector<float>(network.parameter_count));
}

void Trainer::send(const Batch& batch) {
  frame_.send(pictures_, batch.pictures);
  frame_.send(labels_, batch.labels);
}

const Trainer::Buffer& Trainer::result_of(size_t layer) const {
  return network_.convolutions[layer].pooled ? layers_[layer].pooled : layers_[layer].output;
}
const Trainer::Buffer& Trainer::result_gradient_of(size_t layer) const {
  return network_.convolutions[layer].pooled ? layers_[layer].pooled_gradient : layers_[layer].output_gradient;
}
const Trainer::Buffer& Trainer::input_of(size_t layer) const { return layer == 0 ? pictures_ : result_of(layer - 1); }

void Trainer::forward(size_t images) {
  for (size_t number_of_layer = 0; number_of_layer < layers_.size(); ++number_of_layer) {
    const auto& shape = network_.convolutions[number_of_layer];
    const Layer& layer = layers_[number_of_layer];
    const size_t positions = images * shape.pixels();
    frame_.launch(convolve_, {up_to(positions, kWide) / kWide * kTile, up_to(shape.outputs, kTile)}, {kTile, kTile},
                  parameters_, number(shape.first_parameter), input_of(number_of_layer), layer.output,
                  number(shape.inputs), number(shape.outputs), cl_uint{shape.shift}, number(positions));
    if (shape.pooled)
      frame_.launch(pool_, {positions * shape.outputs / 4}, {}, layer.output, layer.pooled, cl_uint{shape.shift - 1});
  }
  const float scale = 1.0F / static_cast<float>(images);
  frame_.launch(classify_, {images * 64}, {64}, parameters_, number(network_.first_of_last),
                result_of(layers_.size() - 1), labels_, score_gradient_, losses_, number(network_.features), scale);
}

void Trainer::backward(size_t images) {
  const size_t last = layers_.size() - 1;
  frame_.launch(classify_parameter_gradient_, {network_.features + 1, kClasses}, {}, score_gradient_, result_of(last),
                gradients_, number(network_.first_of_last), number(images));
  frame_.launch(classify_back_, {network_.features, images}, {}, parameters_, number(network_.first_of_last),
                score_gradient_, result_of(last), result_gradient_of(last));
  for (size_t layer = layers_.size(); layer-- > 0;) convolution_backward(layer, images);
}

void Trainer::convolution_backward(size_t number_of_layer, size_t images) {
  const auto& shape = network_.convolutions[number_of_layer];
  const Layer& layer = layers_[number_of_layer];
  const size_t positions = images * shape.pixels();
  if (shape.pooled)
    frame_.launch(pool_back_, {positions * shape.outputs / 4}, {}, layer.output, layer.pooled, layer.pooled_gradient,
                  layer.output_gradient, cl_uint{shape.shift - 1});
  const size_t images_per_part = (images + kMostParts - 1) / kMostParts;
  const size_t parts = (images + images_per_part - 1) / images_per_part;
  frame_.launch(parameter_gradient_, {up_to(shape.row(), kWide) / kWide * kTile, up_to(shape.outputs, kTile), parts},
                {kTile, kTile, 1}, layer.output_gradient, input_of(number_of_layer), parts_, number(shape.inputs),
                number(shape.outputs), cl_uint{shape.shift}, number(positions),
                number(images_per_part * shape.pixels()));
  frame_.launch(add_parts_, {shape.parameters()}, {}, parts_, gradients_, number(shape.first_parameter),
                number(shape.parameters()), number(parts));
  if (number_of_layer == 0) return;  // the images need no gradient
  frame_.launch(convolve_back_, {up_to(positions, kWide) / kWide * kTile, up_to(shape.inputs, kTile)}, {kTile, kTile},
                parameters_, number(shape.first_parameter), layer.output_gradient, input_of(number_of_layer),
                result_gradient_of(number_of_layer - 1), number(shape.inputs), number(shape.outputs),
                cl_uint{shape.shift}, number(positions));
}

void Trainer::update(float rate, float momentum) {
  frame_.launch(update_, {network_.parameter_count}, {}, parameters_, velocities_, gradients_, rate, momentum);
}

std::vector<float> Trainer::fetch(const Buffer& buffer, size_t count) {
  std::vector<float> values(count);
  frame_.fetch(buffer, values);
  return values;
}

std::vector<float> Trainer::channel_of(const Buffer& pictures, const Convolution& shape, size_t channels,
                                       size_t channel, size_t images) const {
  const size_t plane = shape.pixels() * sizeof(float);
  std::vector<float> values(images * shape.pixels());
  const std::array<size_t, 3> from{channel * plane, 0, 0};
  const std::array<size_t, 3> to{0, 0, 0};
  const std::array<size_t, 3> region{plane, images, 1};
  frame_.timed(Phase::from_device, [&] {
    check(clEnqueueReadBufferRect(frame_.queue(), pictures.get(), CL_TRUE, from.data(), to.data(), region.data(),
                                  channels * plane, 0, plane, 0, values.data(), 0, nullptr, nullptr),
          "clEnqueueReadBufferRect");
  });
  return values;
}

std::vector<float> Trainer::input_channel(size_t layer, size_t channel, size_t images) const {
  const auto& shape = network_.convolutions[layer];
  return channel_of(input_of(layer), shape, shape.inputs, channel, images);
}

std::vector<float> Trainer::gradient_channel(size_t layer, size_t channel, size_t images) const {
  const auto& shape = network_.convolutions[layer];
  return channel_of(layers_[layer].output_gradient, shape, shape.outputs, channel, images);
}

}  // namespace cnn
