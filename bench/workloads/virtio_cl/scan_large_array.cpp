// ScanLargeArray of virtio-CL's paper: prefix sums of an array that is much larger than a group. Its half a megabyte of
// data is 131072 values.
#include "frame/workload.hpp"
#include "scan_large_array.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kGroup = 256;
constexpr size_t kBlock = 4 * kGroup;  // values per group

class ScanLargeArray : public Workload {
 public:
  explicit ScanLargeArray(size_t size) : size_{size}, values_(round_up(size, kBlock)), prefix_sums_(values_.size()) {
    Random random{1};
    // All 32 bits: sums wrap around, on every device alike. The rest of the last block stays zero.
    for (size_t index = 0; index < size_; ++index) values_[index] = static_cast<std::uint32_t>(random.next());
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels, "-DGROUP=" + std::to_string(kGroup));
    scan_blocks_ = frame.kernel("scan_blocks");
    add_totals_ = frame.kernel("add_totals");
    add_level(frame, values_);
    while (levels_.back().blocks > 1) {
      const std::vector<std::uint32_t> zeros(round_up(levels_.back().blocks, kBlock));
      add_level(frame, zeros);
    }
    total_of_all_ = frame.buffer_of<std::uint32_t>(total_.size(), CL_MEM_WRITE_ONLY);
  }
  void iterate(Frame& frame) override {
    for (size_t index = 0; index < levels_.size(); ++index) {
      const Level& level = levels_[index];
      frame.launch(scan_blocks_, {level.blocks * kGroup}, {kGroup}, level.values, level.prefix_sums,
                   index + 1 < levels_.size() ? levels_[index + 1].values : total_of_all_);
    }
    for (size_t index = levels_.size() - 1; index-- > 0;)
      frame.launch(add_totals_, {levels_[index].blocks * kGroup}, {kGroup}, levels_[index].prefix_sums,
                   levels_[index + 1].prefix_sums);
  }
  void collect(Frame& frame) override {
    frame.fetch(levels_.front().prefix_sums, prefix_sums_);
    frame.fetch(total_of_all_, total_);
  }

  void verify() const override {
    std::vector<std::uint32_t> expected(prefix_sums_.size());
    std::uint32_t sum = 0;
    for (size_t index = 0; index < values_.size(); ++index) {
      expected[index] = sum;
      sum += values_[index];
    }
    expect_same("prefix sums", prefix_sums_, expected);
    expect_same("total", total_, std::vector{sum});
  }
  void add_to(Checksum& checksum) const override {
    checksum.add(prefix_sums_.data(), size_ * sizeof prefix_sums_[0]);
    checksum.add(total_);
  }

 private:
  // The totals of a level's blocks are the values of the next.
  struct Level {
    size_t blocks;
    Buffer values;
    Buffer prefix_sums;
  };
  void add_level(Frame& frame, const std::vector<std::uint32_t>& values) {
    levels_.push_back({values.size() / kBlock, frame.buffer_of<std::uint32_t>(values.size()),
                       frame.buffer_of<std::uint32_t>(values.size())});
    frame.send(levels_.back().values, values);
  }

  size_t size_;
  std::vector<std::uint32_t> values_;
  std::vector<std::uint32_t> prefix_sums_;
  std::vector<std::uint32_t> total_{0};
  Kernel scan_blocks_;
  Kernel add_totals_;
  std::vector<Level> levels_;
  Buffer total_of_all_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<ScanLargeArray>(argc, argv,
                                      {.name = "scan_large_array",
                                       .what = "Exclusive prefix sums, block by block in local memory",
                                       .size = 131072,
                                       .size_is = "values",
                                       .iterations = 20,
                                       .quick_size = 20000});
}
