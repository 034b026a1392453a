// ScalarProduct of virtio-CL's paper, which gives no lengths but 0.79 MB of data sent: that many pairs of vectors.
#include <cmath>

#include "frame/workload.hpp"
#include "scalar_product.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kGroup = 64;
constexpr size_t kLength = 512;

class ScalarProduct : public Workload {
 public:
  explicit ScalarProduct(size_t size) : a_(size * kLength), b_(a_.size()), products_(size) {
    Random random{1};
    for (float& value : a_) value = random.between(-1, 1);
    for (float& value : b_) value = random.between(-1, 1);
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels, "-DGROUP=" + std::to_string(kGroup));
    multiply_pairs_ = frame.kernel("multiply_pairs");
    on_device_a_ = frame.buffer_of<float>(a_.size(), CL_MEM_READ_ONLY);
    on_device_b_ = frame.buffer_of<float>(b_.size(), CL_MEM_READ_ONLY);
    on_device_products_ = frame.buffer_of<float>(products_.size(), CL_MEM_WRITE_ONLY);
    frame.send(on_device_a_, a_);
    frame.send(on_device_b_, b_);
  }
  void iterate(Frame& frame) override {
    frame.launch(multiply_pairs_, {products_.size() * kGroup}, {kGroup}, on_device_a_, on_device_b_,
                 on_device_products_, static_cast<cl_uint>(kLength));
  }
  void collect(Frame& frame) override { frame.fetch(on_device_products_, products_); }

  void verify() const override {
    for (size_t pair = 0; pair < products_.size(); ++pair) {
      double sum = 0;
      double magnitude = 0;
      for (size_t i = pair * kLength; i < (pair + 1) * kLength; ++i) {
        const double product = double{a_[i]} * b_[i];
        sum += product;
        magnitude += std::abs(product);
      }
      expect_near("product", pair, products_[pair], sum, 1e-7 * magnitude);
    }
  }
  void add_to(Checksum& checksum) const override { checksum.add(products_); }

 private:
  std::vector<float> a_;
  std::vector<float> b_;
  std::vector<float> products_;
  Kernel multiply_pairs_;
  Buffer on_device_a_;
  Buffer on_device_b_;
  Buffer on_device_products_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<ScalarProduct>(argc, argv,
                                     {.name = "scalar_product",
                                      .what = "Scalar products of many pairs of vectors",
                                      .size = 200,
                                      .size_is = "pairs of vectors of 512 values",
                                      .iterations = 20,
                                      .quick_size = 50});
}
