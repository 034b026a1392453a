// A step of training a network with one hidden layer, in the manner of Rodinia's backprop, which LoGV's papers run: the
// device has the many inputs, the host the few units after them, and data goes back and forth in between.
#include <cmath>

#include "backprop.cl.hpp"
#include "frame/workload.hpp"

namespace {

using namespace workload;

constexpr size_t kHidden = 16;
constexpr size_t kLanes = 16;
constexpr size_t kInputsPerGroup = kHidden * kLanes;
constexpr float kRate = 0.3F;
constexpr float kMomentum = 0.3F;
constexpr double kTarget = 0.1;

using HiddenUnits = std::array<double, kHidden>;

double squash(double sum) { return 1 / (1 + std::exp(-sum)); }

class Backprop : public Workload {
 public:
  explicit Backprop(size_t size)
      : inputs_(round_up(size, kInputsPerGroup)),
        weights_(inputs_.size() * kHidden),
        changes_(weights_.size()),
        partial_sums_(weights_.size() / kInputsPerGroup),
        new_weights_(weights_.size()),
        new_changes_(weights_.size()) {
    Random random{1};
    for (float& value : inputs_) value = random.between(0, 1);
    inputs_[0] = 1;  // its weights are the hidden units' thresholds
    // The sums stay small: at a large one a hidden unit is all but constant and learns nothing.
    const float small = 2 / std::sqrt(static_cast<float>(inputs_.size()));
    for (float& value : weights_) value = random.between(-small, small);
    for (float& value : changes_) value = random.between(-small, small) / 4;
    for (float& value : output_weights_) value = random.between(-1, 1);
    for (float& value : output_changes_) value = random.between(-0.25F, 0.25F);
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels, "-DHIDDEN=" + std::to_string(kHidden) + " -DLANES=" + std::to_string(kLanes));
    forward_ = frame.kernel("forward");
    adjust_ = frame.kernel("adjust");
    on_device_inputs_ = frame.buffer_of<float>(inputs_.size(), CL_MEM_READ_ONLY);
    on_device_weights_ = frame.buffer_of<float>(weights_.size());
    on_device_changes_ = frame.buffer_of<float>(changes_.size());
    on_device_partial_sums_ = frame.buffer_of<float>(partial_sums_.size(), CL_MEM_WRITE_ONLY);
    on_device_deltas_ = frame.buffer_of<float>(kHidden, CL_MEM_READ_ONLY);
  }
  // Each round starts from the same weights, so that any number of them gives the same.
  void iterate(Frame& frame) override {
    frame.send(on_device_inputs_, inputs_);
    frame.send(on_device_weights_, weights_);
    frame.launch(forward_, {kHidden, inputs_.size() / kHidden}, {kHidden, kLanes}, on_device_inputs_,
                 on_device_weights_, on_device_partial_sums_);
    frame.fetch(on_device_partial_sums_, partial_sums_);
    HiddenUnits sums{};
    for (size_t index = 0; index < partial_sums_.size(); ++index) sums[index % kHidden] += partial_sums_[index];
    const HiddenUnits exact_deltas = learn(sums, new_output_weights_);
    const std::vector<float> deltas(exact_deltas.begin(), exact_deltas.end());
    frame.send(on_device_deltas_, deltas);
    frame.send(on_device_changes_, changes_);
    frame.launch(adjust_, {kHidden, inputs_.size()}, {kHidden, kLanes}, on_device_inputs_, on_device_deltas_,
                 on_device_weights_, on_device_changes_, kRate, kMomentum);
  }
  void collect(Frame& frame) override {
    frame.fetch(on_device_weights_, new_weights_);
    frame.fetch(on_device_changes_, new_changes_);
  }

  void verify() const override {
    HiddenUnits sums{};
    for (size_t group = 0; group < inputs_.size() / kInputsPerGroup; ++group) verify_group(group, sums);
    std::array<double, kHidden + 1> output_weights{};
    const HiddenUnits deltas = learn(sums, output_weights);
    for (size_t index = 0; index < output_weights.size(); ++index)
      expect_near("output weight", index, new_output_weights_[index], output_weights[index], 1e-7);
    for (size_t index = 0; index < weights_.size(); ++index) {
      const double step = double{kRate} * deltas[index % kHidden] * inputs_[index / kHidden];
      const double onward = double{kMomentum} * changes_[index];
      const double bound = 1e-6 * (std::abs(step) + std::abs(onward));
      expect_near("change", index, new_changes_[index], step + onward, bound);
      expect_near("weight", index, new_weights_[index], weights_[index] + step + onward,
                  bound + 1e-7 * std::abs(weights_[index]));
    }
  }
  void add_to(Checksum& checksum) const override {
    checksum.add(partial_sums_);
    checksum.add(new_weights_);
    checksum.add(new_changes_);
    checksum.add(new_output_weights_.data(), sizeof new_output_weights_);
  }

 private:
  // What the host does: from the hidden units' sums to the output and back. Returns the errors of the hidden units.
  HiddenUnits learn(const HiddenUnits& sums, std::array<double, kHidden + 1>& output_weights) const {
    HiddenUnits hidden{};
    double sum = output_weights_[kHidden];
    for (size_t unit = 0; unit < kHidden; ++unit) {
      hidden[unit] = squash(sums[unit]);
      sum += output_weights_[unit] * hidden[unit];
    }
    const double output = squash(sum);
    const double output_delta = output * (1 - output) * (kTarget - output);
    HiddenUnits deltas{};
    for (size_t unit = 0; unit <= kHidden; ++unit) {
      const double value = unit == kHidden ? 1 : hidden[unit];
      output_weights[unit] = output_weights_[unit] + kRate * output_delta * value + kMomentum * output_changes_[unit];
      if (unit < kHidden) deltas[unit] = value * (1 - value) * output_weights_[unit] * output_delta;
    }
    return deltas;
  }
  // Adds what a group's inputs contribute.
  void verify_group(size_t group, HiddenUnits& sums) const {
    for (size_t unit = 0; unit < kHidden; ++unit) {
      double sum = 0;
      double magnitude = 0;
      for (size_t input = group * kInputsPerGroup; input < (group + 1) * kInputsPerGroup; ++input) {
        const double product = double{inputs_[input]} * weights_[input * kHidden + unit];
        sum += product;
        magnitude += std::abs(product);
      }
      const size_t index = group * kHidden + unit;
      expect_near("partial sum", index, partial_sums_[index], sum, 1e-7 * magnitude);
      sums[unit] += sum;
    }
  }

  std::vector<float> inputs_;
  std::vector<float> weights_;                       // from each input to all hidden units
  std::vector<float> changes_;                       // the last ones
  std::array<float, kHidden + 1> output_weights_{};  // the last is the threshold
  std::array<float, kHidden + 1> output_changes_{};
  std::vector<float> partial_sums_;
  std::vector<float> new_weights_;
  std::vector<float> new_changes_;
  std::array<double, kHidden + 1> new_output_weights_{};
  Kernel forward_;
  Kernel adjust_;
  Buffer on_device_inputs_;
  Buffer on_device_weights_;
  Buffer on_device_changes_;
  Buffer on_device_partial_sums_;
  Buffer on_device_deltas_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Backprop>(argc, argv,
                                {.name = "backprop",
                                 .what = "A step of training a network with one hidden layer, shared with the host",
                                 .size = 65536,
                                 .size_is = "inputs",
                                 .iterations = 10,
                                 .quick_size = 4096});
}
