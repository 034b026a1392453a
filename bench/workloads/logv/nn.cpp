// Nearest neighbours in the manner of Rodinia's nn, which LoGV's papers run: the device measures, the host chooses. A
// short program, with as many records as Rodinia's example has.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "frame/workload.hpp"
#include "nn.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kGroup = 256;
constexpr size_t kNeighbours = 5;
constexpr cl_float2 kFrom{{30, 90}};  // latitude and longitude

class NearestNeighbours : public Workload {
 public:
  explicit NearestNeighbours(size_t size) : places_(size), distances_(size) {
    Random random{1};
    for (cl_float2& place : places_) place = {{random.between(0, 90), random.between(0, 360)}};
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels);
    measure_ = frame.kernel("measure");
    on_device_places_ = frame.buffer_of<cl_float2>(places_.size(), CL_MEM_READ_ONLY);
    on_device_distances_ = frame.buffer_of<float>(distances_.size(), CL_MEM_WRITE_ONLY);
    frame.send(on_device_places_, places_);
  }
  // A query: its answer is chosen on the host before the next one.
  void iterate(Frame& frame) override {
    frame.launch(measure_, {round_up(places_.size(), kGroup)}, {kGroup}, on_device_places_, on_device_distances_,
                 static_cast<cl_uint>(places_.size()), kFrom);
    frame.fetch(on_device_distances_, distances_);
    choose();
  }
  void collect(Frame&) override {}  // all is there

  void verify() const override {
    std::vector<double> expected(places_.size());
    for (size_t index = 0; index < places_.size(); ++index) {
      expected[index] = std::hypot(double{places_[index].s[0]} - kFrom.s[0], double{places_[index].s[1]} - kFrom.s[1]);
      expect_near("distance", index, distances_[index], expected[index], 5e-7 * expected[index]);
    }
    std::vector<std::uint32_t> different = nearest_;
    std::sort(different.begin(), different.end());
    if (std::adjacent_find(different.begin(), different.end()) != different.end())
      throw Wrong("a place is twice among the nearest");
    std::vector<double> sorted = expected;
    std::sort(sorted.begin(), sorted.end());
    // Two places that are all but equally far may have changed places.
    for (size_t rank = 0; rank < nearest_.size(); ++rank)
      expect_near("nearest", rank, expected.at(nearest_[rank]), sorted[rank], 1e-6 * sorted[rank]);
  }
  void add_to(Checksum& checksum) const override {
    checksum.add(distances_);
    checksum.add(nearest_);
  }

 private:
  void choose() {
    std::vector<std::uint32_t> order(places_.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto wanted = static_cast<std::ptrdiff_t>(std::min(kNeighbours, order.size()));
    std::partial_sort(order.begin(), order.begin() + wanted, order.end(), [&](std::uint32_t one, std::uint32_t other) {
      return distances_[one] != distances_[other] ? distances_[one] < distances_[other] : one < other;
    });
    nearest_.assign(order.begin(), order.begin() + wanted);
  }

  std::vector<cl_float2> places_;
  std::vector<float> distances_;
  std::vector<std::uint32_t> nearest_;
  Kernel measure_;
  Buffer on_device_places_;
  Buffer on_device_distances_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<NearestNeighbours>(argc, argv,
                                         {.name = "nn",
                                          .what = "The places nearest to one, of many: measured by the device",
                                          .size = 42764,
                                          .size_is = "places",
                                          .iterations = 10,
                                          .quick_size = 4096});
}
