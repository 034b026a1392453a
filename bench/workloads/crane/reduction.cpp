// The sum of an array in two stages, like SHOC's Reduction.
#include <cmath>

#include "crane/sizes.hpp"
#include "frame/workload.hpp"
#include "reduction.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kGroups = 1024;

class Reduction : public Workload {
 public:
  // Multiples of 1/64 around zero: no sum of some of them has more digits than a float, so that it is exact in any
  // order and an error in one value can't hide behind rounding.
  explicit Reduction(size_t size) : values_(round_up(size, 4)) {
    Random random{1};
    for (float& value : values_) value = (static_cast<float>(random.below(128)) - 64) / 64;
  }

  void prepare(Frame& frame) override {
    group_ = group_size(frame);
    frame.build(kKernels, define("GROUP", group_));
    sum_shares_ = frame.kernel("sum_shares");
    sum_groups_ = frame.kernel("sum_groups");
    on_device_values_ = frame.buffer_of<float>(values_.size(), CL_MEM_READ_ONLY);
    on_device_sums_ = frame.buffer_of<float>(kGroups);
    on_device_result_ = frame.buffer_of<float>(1, CL_MEM_WRITE_ONLY);
    frame.send(on_device_values_, values_);
  }
  void iterate(Frame& frame) override {
    frame.launch(sum_shares_, {kGroups * group_}, {group_}, on_device_values_, static_cast<cl_uint>(values_.size() / 4),
                 on_device_sums_);
    frame.launch(sum_groups_, {group_}, {group_}, on_device_sums_, static_cast<cl_uint>(kGroups), on_device_result_);
  }
  void collect(Frame& frame) override { frame.fetch(on_device_result_, result_); }

  void verify() const override {
    std::int64_t sum = 0;
    for (const float value : values_) sum += std::lround(value * 64);
    const double expected = static_cast<double>(sum) / 64;
    if (result_[0] != expected)
      throw Wrong("the sum is " + std::to_string(result_[0]) + ", not " + std::to_string(expected));
  }
  void add_to(Checksum& checksum) const override { checksum.add(result_); }

 private:
  size_t group_ = 0;
  std::vector<float> values_;
  std::vector<float> result_ = std::vector<float>(1);
  Kernel sum_shares_;
  Kernel sum_groups_;
  Buffer on_device_values_;
  Buffer on_device_sums_;
  Buffer on_device_result_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Reduction>(argc, argv,
                                 {.name = "reduction",
                                  .what = "Sum of an array of floats in two stages",
                                  .size = size_t{1} << 25,
                                  .size_is = "values",
                                  .iterations = 20,
                                  .quick_size = size_t{1} << 20});
}
