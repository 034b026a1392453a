// A radix sort of 32-bit keys, like SHOC's Sort.
#include <algorithm>

#include "crane/sizes.hpp"
#include "frame/workload.hpp"
#include "sort.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kLargestGroup = 256;
constexpr size_t kDigits = 16;  // as in the kernels, and the next two
constexpr unsigned kBits = 4;
constexpr size_t kKeysPerItem = 8;
constexpr size_t kMostShares = 1024;

class Sort : public Workload {
 public:
  explicit Sort(size_t size) : keys_(round_up(size, kKeysPerItem * kLargestGroup)), sorted_(keys_.size()) {
    Random random{1};
    for (cl_uint& key : keys_) key = static_cast<cl_uint>(random.next() >> 32);
  }

  void prepare(Frame& frame) override {
    group_ = group_size(frame, kLargestGroup);
    chunks_ = keys_.size() / (kKeysPerItem * group_);
    // At least four chunks each. Their counts are scanned by whole groups, in fours.
    shares_ = std::min(kMostShares, round_up((chunks_ + 3) / 4, group_ / 4));
    frame.build(kKernels, define("GROUP", group_));
    count_digits_ = frame.kernel("count_digits");
    scan_counts_ = frame.kernel("scan_counts");
    move_keys_ = frame.kernel("move_keys");
    on_device_keys_ = frame.buffer_of<cl_uint>(keys_.size(), CL_MEM_READ_ONLY);
    on_device_half_sorted_ = frame.buffer_of<cl_uint>(keys_.size());
    on_device_sorted_ = frame.buffer_of<cl_uint>(keys_.size());
    on_device_counts_ = frame.buffer_of<cl_uint>(kDigits * shares_);
    frame.send(on_device_keys_, keys_);
  }
  // The first pass leaves the keys as they are, so that every round sorts the same ones.
  void iterate(Frame& frame) override {
    const Buffer* from = &on_device_keys_;
    const Buffer* to = &on_device_half_sorted_;
    const Buffer* next = &on_device_sorted_;
    for (cl_uint shift = 0; shift < 32; shift += kBits) {
      pass(frame, *from, *to, shift);
      from = to;
      std::swap(to, next);
    }
  }
  void collect(Frame& frame) override { frame.fetch(on_device_sorted_, sorted_); }

  void verify() const override {
    auto expected = keys_;
    std::sort(expected.begin(), expected.end());
    expect_same("sorted key", sorted_, expected);
  }
  void add_to(Checksum& checksum) const override { checksum.add(sorted_); }

 private:
  void pass(Frame& frame, const Buffer& from, const Buffer& to, cl_uint shift) {
    const auto chunks = static_cast<cl_uint>(chunks_);
    const auto chunks_in_share = static_cast<cl_uint>((chunks_ + shares_ - 1) / shares_);
    const Range global{shares_ * group_};
    frame.launch(count_digits_, global, {group_}, from, chunks, chunks_in_share, shift, on_device_counts_);
    frame.launch(scan_counts_, {group_}, {group_}, on_device_counts_, static_cast<cl_uint>(kDigits * shares_ / 4));
    frame.launch(move_keys_, global, {group_}, from, to, chunks, chunks_in_share, shift, on_device_counts_);
  }

  size_t group_ = 0;
  size_t chunks_ = 0;
  size_t shares_ = 0;
  std::vector<cl_uint> keys_;
  std::vector<cl_uint> sorted_;
  Kernel count_digits_;
  Kernel scan_counts_;
  Kernel move_keys_;
  Buffer on_device_keys_;
  Buffer on_device_half_sorted_;
  Buffer on_device_sorted_;
  Buffer on_device_counts_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Sort>(argc, argv,
                            {.name = "sort",
                             .what = "Radix sort of 32-bit keys",
                             .size = size_t{1} << 23,
                             .size_is = "keys",
                             .iterations = 5,
                             .quick_size = size_t{1} << 19});
}
