// Matrix product with blocks in registers, like SHOC's GEMM: fast enough to stand beside a tuned library's.
#include <cmath>

#include "crane/sizes.hpp"
#include "frame/matrix.hpp"
#include "frame/workload.hpp"
#include "gemm.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kLargestTile = 128;
constexpr float kAlpha = 0.75F;
constexpr float kBeta = -0.5F;

class Gemm : public Workload {
 public:
  explicit Gemm(size_t size) : n_{round_up(size, kLargestTile)}, a_(n_ * n_), b_(n_ * n_), c_(n_ * n_), out_(n_ * n_) {
    Random random{1};
    for (auto* matrix : {&a_, &b_, &c_}) {
      for (float& value : *matrix) value = random.between(-1, 1);
    }
  }

  void prepare(Frame& frame) override {
    tile_ = frame.max_group_size() >= kLargestTile / 8 * (kLargestTile / 8) ? kLargestTile : kLargestTile / 2;
    frame.build(kKernels, define("TILE", tile_));
    multiply_ = frame.kernel("multiply");
    on_device_a_ = frame.buffer_of<float>(a_.size(), CL_MEM_READ_ONLY);
    on_device_b_ = frame.buffer_of<float>(b_.size(), CL_MEM_READ_ONLY);
    on_device_c_ = frame.buffer_of<float>(c_.size(), CL_MEM_READ_ONLY);
    on_device_out_ = frame.buffer_of<float>(out_.size(), CL_MEM_WRITE_ONLY);
    frame.send(on_device_a_, a_);
    frame.send(on_device_b_, b_);
    frame.send(on_device_c_, c_);
  }
  void iterate(Frame& frame) override {
    const size_t tiles = n_ / tile_;
    const size_t items = tile_ / 8 * (tile_ / 8);
    frame.launch(multiply_, {tiles * items, tiles}, {items, 1}, on_device_a_, on_device_b_, on_device_c_,
                 on_device_out_, static_cast<cl_uint>(n_), kAlpha, kBeta);
    if (++rounds_ == 1) {  // many drivers compile again for the first launch: it counts for no speed
      frame.finish();
      first_round_ = frame.seconds(Phase::kernels);
    }
  }
  void collect(Frame& frame) override {
    if (rounds_ > 1) {
      const double operations = 2.0 * std::pow(static_cast<double>(n_), 3) * (rounds_ - 1);
      frame.report("gflops", operations / (frame.seconds(Phase::kernels) - first_round_) * 1e-9);
    }
    frame.fetch(on_device_out_, out_);
  }

  // out x = alpha A (B x) + beta C x
  void verify() const override {
    const auto x = random_weights(n_);
    const auto abx = times(a_, times(b_, x));
    const auto cx = times(c_, x);
    const auto result = times(out_, x);
    // Rounding of n sums, each of n products.
    const double bound = 1e-7 * static_cast<double>(n_) * std::sqrt(static_cast<double>(n_));
    for (size_t row = 0; row < n_; ++row) {
      if (!(std::abs(result[row] - (double{kAlpha} * abx[row] + double{kBeta} * cx[row])) <= bound))
        throw Wrong("row " + std::to_string(row) + " of the product");
    }
  }
  void add_to(Checksum& checksum) const override { checksum.add(out_); }

 private:
  size_t n_;
  size_t tile_ = 0;
  unsigned rounds_ = 0;
  double first_round_ = 0;
  std::vector<float> a_;
  std::vector<float> b_;
  std::vector<float> c_;
  std::vector<float> out_;
  Kernel multiply_;
  Buffer on_device_a_;
  Buffer on_device_b_;
  Buffer on_device_c_;
  Buffer on_device_out_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Gemm>(argc, argv,
                            {.name = "gemm",
                             .what = "Matrix product in single precision, with blocks in registers and local memory",
                             .size = 2048,
                             .size_is = "rows and columns",
                             .iterations = 3,
                             .quick_size = 384});
}
