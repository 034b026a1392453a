// MersenneTwister of virtio-CL's paper: 24 million numbers from 4096 generators, read back once uniform and once normal
// (183 MiB).
#include <cmath>
#include <numbers>
#include <random>

#include "frame/workload.hpp"
#include "mersenne_twister.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kGroup = 256;
constexpr size_t kSeedGroup = 64;
constexpr size_t kStreams = 4096;

class MersenneTwister : public Workload {
 public:
  explicit MersenneTwister(size_t size)
      : per_stream_{round_up(round_up(size, kStreams) / kStreams, 2)},
        seeds_(kStreams),
        uniform_(kStreams * per_stream_),
        normal_(uniform_.size()) {
    Random random{1};
    for (cl_uint& seed : seeds_) seed = static_cast<cl_uint>(random.next());
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels, "-DGROUP=" + std::to_string(kGroup));
    seed_streams_ = frame.kernel("seed_streams");
    generate_ = frame.kernel("generate");
    make_normal_ = frame.kernel("make_normal");
    on_device_seeds_ = frame.buffer_of<cl_uint>(seeds_.size(), CL_MEM_READ_ONLY);
    on_device_states_ = frame.buffer_of<cl_uint>(kStreams * std::mt19937::state_size);
    on_device_uniform_ = frame.buffer_of<float>(uniform_.size());
    on_device_normal_ = frame.buffer_of<float>(normal_.size(), CL_MEM_WRITE_ONLY);
    frame.send(on_device_seeds_, seeds_);
  }
  void iterate(Frame& frame) override {
    frame.launch(seed_streams_, {kStreams}, {kSeedGroup}, on_device_seeds_, on_device_states_);
    frame.launch(generate_, {kStreams * kGroup}, {kGroup}, on_device_states_, on_device_uniform_,
                 static_cast<cl_uint>(per_stream_));
    frame.launch(make_normal_, {normal_.size() / 2}, {kGroup}, on_device_uniform_, on_device_normal_);
  }
  void collect(Frame& frame) override {
    frame.fetch(on_device_uniform_, uniform_);
    frame.fetch(on_device_normal_, normal_);
  }

  // The uniform numbers are those of the standard library's generator, bit for bit.
  void verify() const override {
    size_t index = 0;
    for (const cl_uint seed : seeds_) {
      std::mt19937 generator{seed};
      for (size_t pair = 0; pair < per_stream_ / 2; ++pair, index += 2) {
        const double first = uniform(generator());
        const double second = uniform(generator());
        expect_near("uniform", index, uniform_[index], first, 0);
        expect_near("uniform", index + 1, uniform_[index + 1], second, 0);
        const double radius = std::sqrt(-2 * std::log(first));
        // Of small angles, made so without rounding: sines near zero are right too.
        const double cosine = std::sin(2 * std::numbers::pi * quarter_off(second));
        const double sine = std::sin(2 * std::numbers::pi * half_off(second));
        expect_near("normal", index, normal_[index], radius * cosine, kRelative * std::abs(radius * cosine));
        expect_near("normal", index + 1, normal_[index + 1], radius * sine, kRelative * std::abs(radius * sine));
      }
    }
  }
  void add_to(Checksum& checksum) const override {
    checksum.add(uniform_);
    checksum.add(normal_);
  }

 private:
  // The sum of what OpenCL allows log, sqrt, sinpi and cospi to be off by.
  static constexpr double kRelative = 1.5e-6;

  static double uniform(std::uint32_t word) { return (static_cast<double>(word >> 9) + 0.5) * 0x1p-23; }
  // cos(2 pi x) = sin(2 pi y) with y in [-1/4, 1/4], exact; and the same for sin(2 pi x).
  static double quarter_off(double turns) { return turns < 0.5 ? 0.25 - turns : turns - 0.75; }
  static double half_off(double turns) { return turns < 0.25 ? turns : turns < 0.75 ? 0.5 - turns : turns - 1; }

  size_t per_stream_;  // even: normal numbers come in pairs
  std::vector<cl_uint> seeds_;
  std::vector<float> uniform_;  // stream after stream
  std::vector<float> normal_;
  Kernel seed_streams_;
  Kernel generate_;
  Kernel make_normal_;
  Buffer on_device_seeds_;
  Buffer on_device_states_;
  Buffer on_device_uniform_;
  Buffer on_device_normal_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<MersenneTwister>(argc, argv,
                                       {.name = "mersenne_twister",
                                        .what = "Random numbers from many Mersenne twisters, uniform and then normal",
                                        .size = 24'000'000,
                                        .size_is = "numbers",
                                        .iterations = 4,
                                        .quick_size = 3'000'000});
}
