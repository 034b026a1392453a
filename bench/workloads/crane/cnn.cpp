// Training of a convolutional network, as DeepCL does in Crane's paper: twelve convolutional layers, one fully
// connected, and what the batch's images look like after each layer kept for the way back: most of the memory.
#include <cmath>
#include <numeric>
#include <optional>

#include "cnn.cl.hpp"
#include "crane/cnn/network.hpp"
#include "crane/cnn/reference.hpp"
#include "crane/cnn/trainer.hpp"
#include "frame/workload.hpp"

namespace {

using namespace workload;

constexpr size_t kBatches = 4;
constexpr size_t kCheckedImages = 4;  // learnt from once more on the CPU
constexpr float kRate = 0.003F;
constexpr float kMomentum = 0.9F;

double mean(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

class Cnn : public Workload {
 public:
  explicit Cnn(size_t size) : images_{size}, checked_images_{std::min(size, kCheckedImages)} {
    for (size_t number = 0; number < kBatches; ++number) batches_.push_back(cnn::make_batch(images_, 100 + number));
  }

  void prepare(Frame& frame) override {
    trainer_.emplace(frame, kKernels, network_, images_);
    trainer_->send(batches_[0]);
    trainer_->forward(checked_images_);
    trainer_->backward(checked_images_);
    first_losses_ = trainer_->losses(checked_images_);
    first_gradients_ = trainer_->gradients();
    trainer_->forward(images_);
    loss_before_ = mean(trainer_->losses(images_));
  }

  void iterate(Frame&) override {
    trainer_->send(batches_[steps_++ % kBatches]);
    trainer_->forward(images_);
    trainer_->backward(images_);
    trainer_->update(kRate, kMomentum);
  }

  void collect(Frame& frame) override {
    trainer_->send(batches_[0]);
    trainer_->forward(images_);
    trainer_->backward(images_);
    losses_ = trainer_->losses(images_);
    parameters_ = trainer_->parameters();
    gradients_ = trainer_->gradients();
    take_samples();
    frame.report("loss_before", loss_before_);
    frame.report("loss_after", mean(losses_));
  }

  void verify() const override {
    // A few steps may go astray.
    if (steps_ >= 2 * kBatches && !(mean(losses_) < loss_before_))
      throw Wrong("the loss went from " + std::to_string(loss_before_) + " to " + std::to_string(mean(losses_)));
    verify_first_gradients();
    verify_last_losses();
    for (const Sample& sample : samples_) verify_sample(sample);
  }

  void add_to(Checksum& checksum) const override {
    checksum.add(first_gradients_);
    checksum.add(losses_);
    checksum.add(parameters_);
    checksum.add(gradients_);
  }

 private:
  // A channel of what a convolution took in, and of the gradient of what it gave, for a whole batch.
  struct Sample {
    size_t layer;
    size_t input;
    size_t output;
    std::vector<float> pictures;
    std::vector<float> gradient;
  };

  void take_samples() {
    Random random{3};
    for (size_t layer = 0; layer < network_.convolutions.size(); ++layer) {
      const auto& shape = network_.convolutions[layer];
      const size_t input = random.below(static_cast<cl_uint>(shape.inputs));
      const size_t output = random.below(static_cast<cl_uint>(shape.outputs));
      samples_.push_back({layer, input, output, trainer_->input_channel(layer, input, images_),
                          trainer_->gradient_channel(layer, output, images_)});
    }
  }

  // A few images, all gradients, from end to end.
  void verify_first_gradients() const {
    cnn::Reference reference{network_, network_.initial_parameters()};
    const double scale = 1.0 / static_cast<double>(checked_images_);
    for (size_t image = 0; image < checked_images_; ++image) {
      const double loss =
          reference.learn(&batches_[0].pictures[image * cnn::kPicture], batches_[0].labels[image], scale);
      expect_loss("first loss", image, first_losses_[image], loss);
    }
    for (const auto& layer : network_.convolutions)
      expect_gradients(layer.first_parameter, layer.parameters(), reference.gradients());
    expect_gradients(network_.first_of_last, network_.parameter_count - network_.first_of_last, reference.gradients());
  }

  // Measured by the layer's largest: rounding may put a pixel on the other side of zero, and that changes a sum a
  // little.
  void expect_gradients(size_t first, size_t count, const std::vector<double>& expected) const {
    double largest = 0;
    for (size_t i = first; i < first + count; ++i) largest = std::max(largest, std::abs(expected[i]));
    for (size_t i = first; i < first + count; ++i) {
      if (!(std::abs(first_gradients_[i] - expected[i]) <= 1e-3 * largest))
        throw Wrong("gradient of parameter " + std::to_string(i) + " is " + std::to_string(first_gradients_[i]) +
                    ", not " + std::to_string(expected[i]));
    }
  }

  // With what was learnt, for three images of a whole batch.
  void verify_last_losses() const {
    cnn::Reference reference{network_, parameters_};
    for (const size_t image : {size_t{0}, images_ / 2, images_ - 1}) {
      expect_loss("last loss", image, losses_[image],
                  reference.loss(&batches_[0].pictures[image * cnn::kPicture], batches_[0].labels[image]));
    }
  }

  static void expect_loss(const char* what, size_t image, double result, double expected) {
    if (!(std::abs(result - expected) <= 1e-3 * (1 + std::abs(expected))))
      throw Wrong(std::string{what} + " of image " + std::to_string(image) + " is " + std::to_string(result) +
                  ", not " + std::to_string(expected));
  }

  // The gradients of the nine weights between two channels, over a whole batch.
  void verify_sample(const Sample& sample) const {
    const auto& shape = network_.convolutions[sample.layer];
    const auto side = static_cast<int>(shape.side());
    for (int place = 0; place < 9; ++place) {
      double sum = 0;
      double magnitude = 0;
      for (size_t image = 0; image < images_; ++image) {
        const size_t plane = image * shape.pixels();
        for (int y = 0; y < side; ++y) {
          for (int x = 0; x < side; ++x) {
            const int from_x = x + place % 3 - 1;
            const int from_y = y + place / 3 - 1;
            if (from_x < 0 || from_y < 0 || from_x >= side || from_y >= side) continue;
            const double product = double{sample.pictures[plane + static_cast<size_t>(from_y * side + from_x)]} *
                                   sample.gradient[plane + static_cast<size_t>(y * side + x)];
            sum += product;
            magnitude += std::abs(product);
          }
        }
      }
      const size_t parameter =
          shape.first_parameter + sample.output * shape.row() + sample.input * 9 + static_cast<size_t>(place);
      if (!(std::abs(gradients_[parameter] - sum) <= 1e-4 * magnitude))
        throw Wrong("last gradient of parameter " + std::to_string(parameter) + " is " +
                    std::to_string(gradients_[parameter]) + ", not " + std::to_string(sum));
    }
  }

  size_t images_;
  size_t checked_images_;
  const cnn::Network network_;
  std::vector<cnn::Batch> batches_;
  std::optional<cnn::Trainer> trainer_;
  size_t steps_ = 0;
  std::vector<float> first_losses_;     // of a few images, before the training
  std::vector<float> first_gradients_;  // from those
  double loss_before_ = 0;
  std::vector<float> losses_;  // of a batch, after the training
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<Sample> samples_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Cnn>(argc, argv,
                           {.name = "cnn",
                            .what = "Training of a convolutional network with 13 layers",
                            .size = 32,
                            .size_is = "images in a batch, 0.8 MB of device memory each",
                            .iterations = 16,
                            .quick_size = 8});
}
