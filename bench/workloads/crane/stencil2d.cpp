// A nine-point stencil on a grid, like SHOC's Stencil2D. A round is some steps from the same start, there and back
// between two buffers.
#include <cmath>

#include "crane/sizes.hpp"
#include "frame/workload.hpp"
#include "stencil2d.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kTileWidth = 64;
constexpr size_t kTileHeight = 16;
constexpr unsigned kSteps = 8;  // even: the last writes to the second buffer
constexpr float kCenter = 0.25F;
constexpr float kSide = 0.15F;
constexpr float kCorner = 0.0375F;

class Stencil2d : public Workload {
 public:
  explicit Stencil2d(size_t size) : n_{round_up(size, kTileWidth)}, start_(n_ * n_), result_(n_ * n_) {
    Random random{1};
    for (float& value : start_) value = random.between(-1, 1);
  }

  void prepare(Frame& frame) override {
    group_rows_ = group_size(frame) / kTileWidth;
    frame.build(kKernels,
                define("WIDTH", kTileWidth) + define("HEIGHT", kTileHeight) + define("GROUP_ROWS", group_rows_));
    advance_ = frame.kernel("advance");
    on_device_start_ = frame.buffer_of<float>(start_.size(), CL_MEM_READ_ONLY);
    on_device_odd_ = frame.buffer_of<float>(start_.size());
    on_device_even_ = frame.buffer_of<float>(start_.size());
    frame.send(on_device_start_, start_);
  }
  void iterate(Frame& frame) override {
    const Buffer* from = &on_device_start_;
    for (unsigned step = 1; step <= kSteps; ++step) {
      const Buffer& to = step % 2 == 0 ? on_device_even_ : on_device_odd_;
      frame.launch(advance_, {n_, n_ / kTileHeight * group_rows_}, {kTileWidth, group_rows_}, *from, to,
                   static_cast<cl_uint>(n_), kCenter, kSide, kCorner);
      from = &to;
    }
  }
  void collect(Frame& frame) override { frame.fetch(on_device_even_, result_); }

  void verify() const override {
    std::vector<double> now(start_.begin(), start_.end());
    auto next = now;
    for (unsigned step = 0; step < kSteps; ++step) {
      for (size_t row = 1; row + 1 < n_; ++row) {
        const double* above = &now[(row - 1) * n_];
        const double* here = above + n_;
        const double* below = here + n_;
        double* to = &next[row * n_];
        for (size_t x = 1; x + 1 < n_; ++x) {
          to[x] = double{kCenter} * here[x] + double{kSide} * (above[x] + below[x] + here[x - 1] + here[x + 1]) +
                  double{kCorner} * (above[x - 1] + above[x + 1] + below[x - 1] + below[x + 1]);
        }
      }
      std::swap(now, next);
    }
    for (size_t i = 0; i < result_.size(); ++i) {
      if (!(std::abs(result_[i] - now[i]) <= 5e-7))
        throw Wrong("row " + std::to_string(i / n_) + ", column " + std::to_string(i % n_) + " is " +
                    std::to_string(result_[i]) + ", not " + std::to_string(now[i]));
    }
  }
  void add_to(Checksum& checksum) const override { checksum.add(result_); }

 private:
  size_t n_;
  size_t group_rows_ = 0;
  std::vector<float> start_;
  std::vector<float> result_;
  Kernel advance_;
  Buffer on_device_start_;
  Buffer on_device_odd_;
  Buffer on_device_even_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Stencil2d>(argc, argv,
                                 {.name = "stencil2d",
                                  .what = "Nine-point stencil on a square grid, eight steps a round",
                                  .size = 4096,
                                  .size_is = "rows and columns",
                                  .iterations = 5,
                                  .quick_size = 512});
}
