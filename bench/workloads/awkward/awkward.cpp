// Awkward on purpose: what programs may do and few programs do, all of it checked at each step. The checksum doesn't
// depend on timing, nor on the device (but for images, where the device has none).
#include "awkward.cl.hpp"
#include "awkward/awkward/part.hpp"

namespace {

using namespace workload;

class Awkward : public Workload {
 public:
  explicit Awkward(size_t size) : words_{std::max<size_t>(size, 64) / 4 * 4} {}

  void prepare(Frame& frame) override {
    frame.build(kKernels);
    parts_.push_back(awkward::make_mappings(frame, words_));
    parts_.push_back(awkward::make_events(frame, words_));
    parts_.push_back(awkward::make_graph(frame, words_));
    parts_.push_back(awkward::make_pieces(frame, words_));
    if (frame.has_images()) parts_.push_back(awkward::make_images(frame, words_));
    parts_.push_back(awkward::make_threads(frame, words_));
  }
  // The time counts as one phase: waiting, copying and computing happen at once here.
  void iterate(Frame& frame) override {
    frame.timed(Phase::kernels, [&] {
      for (const auto& part : parts_) part->round(frame, round_, checksum_);
    });
    ++round_;
  }
  void collect(Frame& frame) override { frame.report("images", frame.has_images() ? 1 : 0); }
  void verify() const override {}  // each round did
  void add_to(Checksum& checksum) const override {
    const std::uint64_t value = checksum_.value();
    checksum.add(&value, sizeof value);
  }

 private:
  size_t words_;
  std::vector<std::unique_ptr<awkward::Part>> parts_;
  unsigned round_ = 0;
  Checksum checksum_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Awkward>(
      argc, argv,
      {.name = "awkward",
       .what = "User events, callbacks, out-of-order queues, long mappings, sub-buffers, images, "
               "host memory and threads",
       .size = 262144,
       .size_is = "words in each array",
       .iterations = 20,
       .quick_size = 16384});
}
