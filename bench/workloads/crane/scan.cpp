// Prefix sums of an array in three kernels, like SHOC's Scan.
#include "crane/sizes.hpp"
#include "frame/workload.hpp"
#include "scan.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kLargestGroup = 256;

class Scan : public Workload {
 public:
  explicit Scan(size_t size) : values_(round_up(size, 4 * kLargestGroup)), results_(values_.size()) {
    Random random{1};
    for (cl_uint& value : values_) value = static_cast<cl_uint>(random.next() >> 32);
  }

  void prepare(Frame& frame) override {
    group_ = group_size(frame, kLargestGroup);
    shares_ = 4 * group_;
    frame.build(kKernels, define("GROUP", group_));
    sum_shares_ = frame.kernel("sum_shares");
    scan_sums_ = frame.kernel("scan_sums");
    scan_shares_ = frame.kernel("scan_shares");
    on_device_values_ = frame.buffer_of<cl_uint>(values_.size(), CL_MEM_READ_ONLY);
    on_device_sums_ = frame.buffer_of<cl_uint>(shares_);
    on_device_results_ = frame.buffer_of<cl_uint>(results_.size(), CL_MEM_WRITE_ONLY);
    frame.send(on_device_values_, values_);
  }
  void iterate(Frame& frame) override {
    const auto chunks = static_cast<cl_uint>(values_.size() / (4 * group_));
    const auto chunks_in_share = static_cast<cl_uint>((chunks + shares_ - 1) / shares_);
    const Range global{shares_ * group_};
    frame.launch(sum_shares_, global, {group_}, on_device_values_, chunks, chunks_in_share, on_device_sums_);
    frame.launch(scan_sums_, {group_}, {group_}, on_device_sums_);
    frame.launch(scan_shares_, global, {group_}, on_device_values_, chunks, chunks_in_share, on_device_sums_,
                 on_device_results_);
  }
  void collect(Frame& frame) override { frame.fetch(on_device_results_, results_); }

  void verify() const override {
    std::vector<cl_uint> expected(values_.size());
    cl_uint sum = 0;
    for (size_t i = 0; i < values_.size(); ++i) {
      expected[i] = sum;
      sum += values_[i];
    }
    expect_same("prefix sum", results_, expected);
  }
  void add_to(Checksum& checksum) const override { checksum.add(results_); }

 private:
  size_t group_ = 0;
  size_t shares_ = 0;
  std::vector<cl_uint> values_;
  std::vector<cl_uint> results_;
  Kernel sum_shares_;
  Kernel scan_sums_;
  Kernel scan_shares_;
  Buffer on_device_values_;
  Buffer on_device_sums_;
  Buffer on_device_results_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Scan>(argc, argv,
                            {.name = "scan",
                             .what = "Exclusive prefix sums of an array of integers",
                             .size = size_t{1} << 25,
                             .size_is = "values",
                             .iterations = 10,
                             .quick_size = size_t{1} << 22});
}
