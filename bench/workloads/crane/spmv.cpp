// A sparse matrix times a vector in compressed rows and in ELLPACK, like SHOC's Spmv.
#include <cmath>

#include "crane/sizes.hpp"
#include "frame/workload.hpp"
#include "spmv.cl.hpp"

namespace {

using namespace workload;

constexpr cl_uint kFewest = 16;  // entries in a row
constexpr cl_uint kMost = 48;
constexpr size_t kLanes = 32;  // work-items that share a row

class Spmv : public Workload {
 public:
  explicit Spmv(size_t size)
      : rows_{static_cast<cl_uint>(std::max<size_t>(size, kMost))}, vector_(rows_), starts_(rows_ + 1) {
    make_matrix();
    for (auto& results : results_) results.resize(rows_);
  }

  void prepare(Frame& frame) override {
    group_ = group_size(frame);
    frame.build(kKernels, define("GROUP", group_) + define("LANES", kLanes));
    multiply_rows_ = frame.kernel("multiply_rows");
    multiply_rows_together_ = frame.kernel("multiply_rows_together");
    multiply_padded_ = frame.kernel("multiply_padded");
    on_device_vector_ = send_new(frame, vector_);
    on_device_values_ = send_new(frame, values_);
    on_device_columns_ = send_new(frame, columns_);
    on_device_starts_ = send_new(frame, starts_);
    on_device_padded_values_ = send_new(frame, padded_values_);
    on_device_padded_columns_ = send_new(frame, padded_columns_);
    for (auto& results : on_device_results_) results = frame.buffer_of<float>(rows_, CL_MEM_WRITE_ONLY);
  }
  void iterate(Frame& frame) override {
    const Range one_each{round_up(rows_, group_)};
    frame.launch(multiply_rows_, one_each, {group_}, on_device_values_, on_device_columns_, on_device_starts_,
                 on_device_vector_, on_device_results_[0], rows_);
    frame.launch(multiply_rows_together_, {round_up(rows_ * kLanes, group_)}, {group_}, on_device_values_,
                 on_device_columns_, on_device_starts_, on_device_vector_, on_device_results_[1], rows_);
    frame.launch(multiply_padded_, one_each, {group_}, on_device_padded_values_, on_device_padded_columns_, kMost,
                 on_device_vector_, on_device_results_[2], rows_);
  }
  void collect(Frame& frame) override {
    for (size_t i = 0; i < results_.size(); ++i) frame.fetch(on_device_results_[i], results_[i]);
  }

  void verify() const override {
    for (cl_uint row = 0; row < rows_; ++row) {
      double expected = 0;
      double magnitude = 0;
      for (cl_uint i = starts_[row]; i < starts_[row + 1]; ++i) {
        const double product = double{values_[i]} * double{vector_[columns_[i]]};
        expected += product;
        magnitude += std::abs(product);
      }
      // Rounding of a sum goes with the size of what is added.
      for (const auto& results : results_) {
        if (!(std::abs(results[row] - expected) <= 1e-6 * magnitude))
          throw Wrong("row " + std::to_string(row) + " is " + std::to_string(results[row]) + ", not " +
                      std::to_string(expected));
      }
    }
  }
  void add_to(Checksum& checksum) const override {
    for (const auto& results : results_) checksum.add(results);
  }

 private:
  template <class T>
  static Buffer send_new(Frame& frame, const std::vector<T>& data) {
    Buffer buffer = frame.buffer_of<T>(data.size(), CL_MEM_READ_ONLY);
    frame.send(buffer, data);
    return buffer;
  }

  // Rows of differing length, with one entry somewhere in each of as many equal parts.
  void make_matrix() {
    Random random{1};
    for (float& value : vector_) value = random.between(-1, 1);
    padded_values_.resize(size_t{rows_} * kMost);
    padded_columns_.resize(padded_values_.size());
    for (cl_uint row = 0; row < rows_; ++row) {
      const cl_uint entries = kFewest + random.below(kMost - kFewest + 1);
      const cl_uint part = rows_ / entries;
      for (cl_uint rank = 0; rank < entries; ++rank) {
        values_.push_back(random.between(-1, 1));
        columns_.push_back(rank * part + random.below(part));
        padded_values_[size_t{rank} * rows_ + row] = values_.back();
        padded_columns_[size_t{rank} * rows_ + row] = columns_.back();
      }
      starts_[row + 1] = static_cast<cl_uint>(values_.size());
    }
  }

  cl_uint rows_;
  size_t group_ = 0;
  std::vector<float> vector_;
  std::vector<float> values_;
  std::vector<cl_uint> columns_;
  std::vector<cl_uint> starts_;
  std::vector<float> padded_values_;
  std::vector<cl_uint> padded_columns_;
  std::array<std::vector<float>, 3> results_;  // of each kernel
  Kernel multiply_rows_;
  Kernel multiply_rows_together_;
  Kernel multiply_padded_;
  Buffer on_device_vector_;
  Buffer on_device_values_;
  Buffer on_device_columns_;
  Buffer on_device_starts_;
  Buffer on_device_padded_values_;
  Buffer on_device_padded_columns_;
  std::array<Buffer, 3> on_device_results_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Spmv>(argc, argv,
                            {.name = "spmv",
                             .what = "Sparse matrix times vector: compressed rows in two ways, and ELLPACK",
                             .size = 262144,
                             .size_is = "rows",
                             .iterations = 10,
                             .quick_size = 16384});
}
