// FastWalshTransform of virtio-CL's paper, which gives no length but 3 MB of data sent: the nearest power of two.
#include <algorithm>
#include <bit>

#include "fast_walsh.cl.hpp"
#include "frame/workload.hpp"

namespace {

using namespace workload;

constexpr size_t kGroup = 256;
constexpr size_t kBlock = 2048;  // the kernel wants an odd number of bits
static_assert(std::countr_zero(kBlock) % 2 == 1);

// By halves: H(2n) is H(n) of the halves' sum and of their difference.
void transform(std::span<double> values) {
  if (values.size() == 1) return;
  const auto low = values.first(values.size() / 2);
  const auto high = values.last(values.size() / 2);
  transform(low);
  transform(high);
  for (size_t i = 0; i < low.size(); ++i) {
    const double sum = low[i] + high[i];
    high[i] = low[i] - high[i];
    low[i] = sum;
  }
}

class FastWalsh : public Workload {
 public:
  explicit FastWalsh(size_t size) : values_(std::bit_ceil(std::max(size, kBlock))), transformed_(values_.size()) {
    Random random{1};
    // Whole numbers: their sums are exact in single precision, in whatever order.
    for (float& value : values_) value = static_cast<float>(random.below(17)) - 8;
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels, "-DGROUP=" + std::to_string(kGroup) + " -DBLOCK=" + std::to_string(kBlock));
    radix_two_ = frame.kernel("radix_two");
    radix_four_ = frame.kernel("radix_four");
    blocks_ = frame.kernel("blocks");
    on_device_values_ = frame.buffer_of<float>(values_.size(), CL_MEM_READ_ONLY);
    on_device_transformed_ = frame.buffer_of<float>(values_.size());
    frame.send(on_device_values_, values_);
  }
  // From the largest stride to the smallest; only the first step reads the input.
  void iterate(Frame& frame) override {
    const Buffer* from = &on_device_values_;
    size_t length = values_.size();  // of what isn't transformed yet
    if (std::countr_zero(length / kBlock) % 2 == 1) {
      length /= 2;
      frame.launch(radix_two_, {values_.size() / 2}, {kGroup}, *from, on_device_transformed_,
                   static_cast<cl_uint>(length));
      from = &on_device_transformed_;
    }
    while (length > kBlock) {
      length /= 4;
      frame.launch(radix_four_, {values_.size() / 4}, {kGroup}, *from, on_device_transformed_,
                   static_cast<cl_uint>(length));
      from = &on_device_transformed_;
    }
    frame.launch(blocks_, {values_.size() / kBlock * kGroup}, {kGroup}, *from, on_device_transformed_);
  }
  void collect(Frame& frame) override { frame.fetch(on_device_transformed_, transformed_); }

  void verify() const override {
    std::vector<double> expected(values_.begin(), values_.end());
    transform(expected);
    for (size_t index = 0; index < expected.size(); ++index)
      expect_near("transformed", index, transformed_[index], expected[index], 0);
    // And some by the definition, in case both have misunderstood it.
    Random random{2};
    for (int sample = 0; sample < 8; ++sample) {
      const size_t index = random.below(static_cast<std::uint32_t>(values_.size()));
      double sum = 0;
      for (size_t i = 0; i < values_.size(); ++i) sum += std::popcount(i & index) % 2 == 0 ? values_[i] : -values_[i];
      expect_near("transformed", index, transformed_[index], sum, 0);
    }
  }
  void add_to(Checksum& checksum) const override { checksum.add(transformed_); }

 private:
  std::vector<float> values_;
  std::vector<float> transformed_;
  Kernel radix_two_;
  Kernel radix_four_;
  Kernel blocks_;
  Buffer on_device_values_;
  Buffer on_device_transformed_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<FastWalsh>(argc, argv,
                                 {.name = "fast_walsh",
                                  .what = "Walsh-Hadamard transform: steps through memory, then blocks in local memory",
                                  .size = size_t{1} << 19,
                                  .size_is = "values, rounded up to a power of two",
                                  .iterations = 20,
                                  .quick_size = size_t{1} << 14});
}
