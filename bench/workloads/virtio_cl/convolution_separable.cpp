// ConvolutionSeparable of virtio-CL's paper. Its 36 MiB there and back are an image of 3072 by 3072.
#include <algorithm>
#include <cmath>

#include "convolution_separable.cl.hpp"
#include "frame/workload.hpp"

namespace {

using namespace workload;

constexpr size_t kRadius = 8;
constexpr size_t kTaps = 2 * kRadius + 1;
constexpr size_t kWidth = 32;  // of a group
constexpr size_t kHeight = 8;
constexpr size_t kSteps = 4;  // values per item

class ConvolutionSeparable : public Workload {
 public:
  explicit ConvolutionSeparable(size_t size)
      : n_{round_up(size, kWidth * kSteps)},
        image_(n_ * n_),
        row_filter_(kTaps),
        column_filter_(kTaps),
        convolved_(n_ * n_) {
    Random random{1};
    for (float& value : image_) value = random.between(0, 1);
    for (float& value : row_filter_) value = random.between(-1, 1);
    for (float& value : column_filter_) value = random.between(-1, 1);
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels, "-DRADIUS=" + std::to_string(kRadius) + " -DWIDTH=" + std::to_string(kWidth) +
                              " -DHEIGHT=" + std::to_string(kHeight) + " -DSTEPS=" + std::to_string(kSteps));
    convolve_rows_ = frame.kernel("convolve_rows");
    convolve_columns_ = frame.kernel("convolve_columns");
    on_device_image_ = frame.buffer_of<float>(image_.size(), CL_MEM_READ_ONLY);
    on_device_rows_done_ = frame.buffer_of<float>(image_.size());
    on_device_convolved_ = frame.buffer_of<float>(image_.size(), CL_MEM_WRITE_ONLY);
    on_device_row_filter_ = frame.buffer_of<float>(kTaps, CL_MEM_READ_ONLY);
    on_device_column_filter_ = frame.buffer_of<float>(kTaps, CL_MEM_READ_ONLY);
    frame.send(on_device_image_, image_);
    frame.send(on_device_row_filter_, row_filter_);
    frame.send(on_device_column_filter_, column_filter_);
  }
  void iterate(Frame& frame) override {
    const auto n = static_cast<cl_int>(n_);
    frame.launch(convolve_rows_, {n_ / kSteps, n_}, {kWidth, kHeight}, on_device_image_, on_device_rows_done_,
                 on_device_row_filter_, n);
    frame.launch(convolve_columns_, {n_, n_ / kSteps}, {kWidth, kHeight}, on_device_rows_done_, on_device_convolved_,
                 on_device_column_filter_, n, n);
  }
  void collect(Frame& frame) override { frame.fetch(on_device_convolved_, convolved_); }

  // Columns before rows: one row of the result after the other, with little memory.
  void verify() const override {
    double largest = 0;  // that an element of the result could be
    for (const float row_weight : row_filter_) {
      for (const float weight : column_filter_) largest += std::abs(double{row_weight} * weight);
    }
    std::vector<double> columns_done(n_ + 2 * kRadius);  // black at both ends
    for (size_t row = 0; row < n_; ++row) {
      std::fill(columns_done.begin(), columns_done.end(), 0.0);
      for (size_t tap = 0; tap < kTaps; ++tap) {
        const size_t source = row + kRadius - tap;  // wraps around above the image
        if (source >= n_) continue;
        for (size_t column = 0; column < n_; ++column)
          columns_done[kRadius + column] += double{column_filter_[tap]} * image_[source * n_ + column];
      }
      for (size_t column = 0; column < n_; ++column) {
        double sum = 0;
        for (size_t tap = 0; tap < kTaps; ++tap) sum += row_filter_[tap] * columns_done[column + 2 * kRadius - tap];
        expect_near("convolved", row * n_ + column, convolved_[row * n_ + column], sum, 2e-7 * largest);
      }
    }
  }
  void add_to(Checksum& checksum) const override { checksum.add(convolved_); }

 private:
  size_t n_;
  std::vector<float> image_;
  std::vector<float> row_filter_;
  std::vector<float> column_filter_;
  std::vector<float> convolved_;
  Kernel convolve_rows_;
  Kernel convolve_columns_;
  Buffer on_device_image_;
  Buffer on_device_rows_done_;
  Buffer on_device_convolved_;
  Buffer on_device_row_filter_;
  Buffer on_device_column_filter_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<ConvolutionSeparable>(argc, argv,
                                            {.name = "convolution_separable",
                                             .what = "An image convolved with a filter for rows and one for columns",
                                             .size = 3072,
                                             .size_is = "rows and columns",
                                             .iterations = 16,
                                             .quick_size = 256});
}
