// LU decomposition in the manner of Rodinia's lud, which LoGV's papers run: many short kernels. Their 39 MiB of data
// are a matrix of 3200 by 3200.
#include <CLI/CLI.hpp>
#include <cmath>

#include "frame/matrix.hpp"
#include "frame/workload.hpp"
#include "lud.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kTile = 16;

class Lud : public Workload {
 public:
  // Steps get shorter by the square of what is left: a part of the work is fewer of the first ones.
  Lud(size_t size, double part)
      : n_{round_up(size, kTile)},
        done_{std::min(n_, round_up(static_cast<size_t>((1 - std::cbrt(1 - part)) * static_cast<double>(n_)), kTile))},
        matrix_(n_ * n_),
        decomposed_(n_ * n_) {
    Random random{1};
    for (float& value : matrix_) value = random.between(-1, 1);
    // Heavy enough that nothing needs pivoting, and light enough that L isn't all but zero below its diagonal.
    const float heavy = 1 + 2 * std::sqrt(static_cast<float>(n_));
    for (size_t row = 0; row < n_; ++row) matrix_[row * n_ + row] += heavy;
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels, "-DTILE=" + std::to_string(kTile));
    diagonal_ = frame.kernel("diagonal");
    perimeter_ = frame.kernel("perimeter");
    internal_ = frame.kernel("internal");
    on_device_ = frame.buffer_of<float>(matrix_.size());
  }
  // The matrix is decomposed where it is: each round needs it anew.
  void iterate(Frame& frame) override {
    frame.send(on_device_, matrix_);
    const auto n = static_cast<cl_uint>(n_);
    for (size_t start = 0; start < done_; start += kTile) {
      const auto from = static_cast<cl_uint>(start);
      frame.launch(diagonal_, {kTile, kTile}, {kTile, kTile}, on_device_, n, from);
      const size_t rest = n_ - start - kTile;
      if (rest == 0) break;
      frame.launch(perimeter_, {2 * rest}, {2 * kTile}, on_device_, n, from);
      frame.launch(internal_, {rest, rest}, {kTile, kTile}, on_device_, n, from);
    }
  }
  void collect(Frame& frame) override { frame.fetch(on_device_, decomposed_); }

  // L (U x) = A x; of what isn't decomposed yet, the rest stands where U would.
  void verify() const override {
    const auto x = random_weights(n_);
    const auto ax = times(matrix_, x);
    std::vector<double> ux(n_);
    for (size_t row = 0; row < n_; ++row) {
      for (size_t column = std::min(row, done_); column < n_; ++column)
        ux[row] += decomposed_[row * n_ + column] * x[column];
    }
    const double bound = 4e-7 * static_cast<double>(n_);
    for (size_t row = 0; row < n_; ++row) {
      double lux = ux[row];
      for (size_t column = 0; column < std::min(row, done_); ++column)
        lux += decomposed_[row * n_ + column] * ux[column];
      expect_near("row of the product", row, lux, ax[row], bound);
    }
  }
  void add_to(Checksum& checksum) const override { checksum.add(decomposed_); }

 private:
  size_t n_;
  size_t done_;  // rows and columns that are decomposed
  std::vector<float> matrix_;
  std::vector<float> decomposed_;
  Kernel diagonal_;
  Kernel perimeter_;
  Kernel internal_;
  Buffer on_device_;
};

}  // namespace

int main(int argc, char** argv) {
  double part = 1;
  return run_workload(
      argc, argv,
      {.name = "lud",
       .what = "LU decomposition without pivoting, in tiles: many short kernels",
       .size = 3200,
       .size_is = "rows and columns",
       .iterations = 1,
       .quick_size = 256},
      [&](size_t size) { return std::make_unique<Lud>(size, part); },
      [&](CLI::App& app) {
        app.add_option("--part", part, "do only that part of the work; 1 unless told")->check(CLI::Range(0.001, 1.0));
      });
}
