// Matrix product, as LoGV's and virtio-CL's papers run it: 2048 by 2048, single precision.
#include <CLI/CLI.hpp>
#include <cmath>

#include "frame/matrix.hpp"
#include "frame/workload.hpp"
#include "mmul.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kTile = 16;

class Mmul : public Workload {
 public:
  Mmul(size_t size, double part)
      : n_{round_up(size, kTile)},
        rows_{std::min(n_, round_up(static_cast<size_t>(part * static_cast<double>(n_)), kTile))},
        a_(n_ * n_),
        b_(n_ * n_),
        c_(n_ * n_) {
    Random random{1};
    for (float& value : a_) value = random.between(-1, 1);
    for (float& value : b_) value = random.between(-1, 1);
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels, "-DTILE=" + std::to_string(kTile));
    multiply_ = frame.kernel("multiply");
    on_device_a_ = frame.buffer_of<float>(a_.size(), CL_MEM_READ_ONLY);
    on_device_b_ = frame.buffer_of<float>(b_.size(), CL_MEM_READ_ONLY);
    on_device_c_ = frame.buffer_of<float>(c_.size(), CL_MEM_WRITE_ONLY);
    frame.send(on_device_a_, a_);
    frame.send(on_device_b_, b_);
  }
  void iterate(Frame& frame) override {
    frame.launch(multiply_, {n_, rows_}, {kTile, kTile}, on_device_a_, on_device_b_, on_device_c_,
                 static_cast<cl_uint>(n_));
  }
  void collect(Frame& frame) override { frame.fetch(on_device_c_, c_); }

  void verify() const override {
    const auto x = random_weights(n_);
    const auto abx = times(a_, times(b_, x));
    const auto cx = times(c_, x);
    const double bound = 1e-6 * static_cast<double>(n_) * std::sqrt(static_cast<double>(n_));
    for (size_t row = 0; row < rows_; ++row) {
      if (!(std::abs(cx[row] - abx[row]) <= bound)) throw Wrong("row " + std::to_string(row) + " of the product");
    }
  }
  void add_to(Checksum& checksum) const override { checksum.add(c_.data(), rows_ * n_ * sizeof(float)); }

 private:
  size_t n_;
  size_t rows_;  // that are computed
  std::vector<float> a_;
  std::vector<float> b_;
  std::vector<float> c_;
  Kernel multiply_;
  Buffer on_device_a_;
  Buffer on_device_b_;
  Buffer on_device_c_;
};

}  // namespace

int main(int argc, char** argv) {
  double part = 1;
  return run_workload(
      argc, argv,
      {.name = "mmul",
       .what = "Matrix product in single precision, tiled in local memory",
       .size = 2048,
       .size_is = "rows and columns",
       .iterations = 1,
       .quick_size = 256},
      [&](size_t size) { return std::make_unique<Mmul>(size, part); },
      [&](CLI::App& app) {
        app.add_option("--part", part, "compute only that part of the rows; 1 unless told")
            ->check(CLI::Range(0.001, 1.0));
      });
}
