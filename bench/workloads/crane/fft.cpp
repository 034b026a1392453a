// Fourier transforms of many short signals and the way back, like SHOC's FFT.
#include <cmath>
#include <complex>
#include <numbers>

#include "crane/sizes.hpp"
#include "fft.cl.hpp"
#include "frame/workload.hpp"

namespace {

using namespace workload;

constexpr size_t kPoints = 512;
constexpr size_t kItems = 64;  // work-items for each transform

using Numbers = std::vector<std::complex<float>>;

class Fft : public Workload {
 public:
  explicit Fft(size_t size)
      : transforms_{size},
        signals_(size * kPoints),
        spectra_(signals_.size()),
        back_(signals_.size()),
        roots_(kPoints) {
    Random random{1};
    for (auto& value : signals_) {
      const float real = random.between(-1, 1);
      value = {real, random.between(-1, 1)};
    }
    for (size_t i = 0; i < kPoints; ++i)
      roots_[i] = std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i) / kPoints);
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels);
    forward_ = frame.kernel("forward");
    backward_ = frame.kernel("backward");
    using Number = Numbers::value_type;
    on_device_signals_ = frame.buffer_of<Number>(signals_.size(), CL_MEM_READ_ONLY);
    on_device_spectra_ = frame.buffer_of<Number>(spectra_.size());
    on_device_back_ = frame.buffer_of<Number>(back_.size(), CL_MEM_WRITE_ONLY);
    on_device_roots_ = frame.buffer_of<Number>(roots_.size(), CL_MEM_READ_ONLY);
    frame.send(on_device_signals_, signals_);
    frame.send(on_device_roots_, Numbers(roots_.begin(), roots_.end()));
  }
  void iterate(Frame& frame) override {
    const Range global{transforms_ * kItems};
    frame.launch(forward_, global, {kItems}, on_device_signals_, on_device_spectra_, on_device_roots_);
    frame.launch(backward_, global, {kItems}, on_device_spectra_, on_device_back_, on_device_roots_);
  }
  void collect(Frame& frame) override {
    frame.fetch(on_device_spectra_, spectra_);
    frame.fetch(on_device_back_, back_);
  }

  void verify() const override {
    for (size_t i = 0; i < 16; ++i) check_directly(i * (transforms_ - 1) / 15);
    check_combinations();
    for (size_t i = 0; i < signals_.size(); ++i) {
      if (!(std::abs(back_[i] - signals_[i]) <= 4e-6)) wrong("the way back of", i / kPoints);
    }
  }
  void add_to(Checksum& checksum) const override {
    checksum.add(spectra_);
    checksum.add(back_);
  }

 private:
  using Exact = std::complex<double>;

  [[noreturn]] static void wrong(const char* what, size_t transform) {
    throw Wrong(what + (" transform " + std::to_string(transform)));
  }
  static Exact product(Exact a, Exact b) {  // operator* also looks after infinities, which takes its time
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }

  // By the definition.
  void check_directly(size_t transform) const {
    const auto* signal = &signals_[transform * kPoints];
    const auto* spectrum = &spectra_[transform * kPoints];
    for (size_t k = 0; k < kPoints; ++k) {
      Exact expected;
      for (size_t n = 0; n < kPoints; ++n) expected += product(signal[n], roots_[k * n % kPoints]);
      if (!(std::abs(Exact{spectrum[k]} - expected) <= 5e-5)) wrong("the definition and", transform);
    }
  }

  // A random combination of all numbers of a spectrum is a combination of the signal's numbers, whose weights are the
  // same for all transforms: an error in any number shows.
  void check_combinations() const {
    Random random{2};
    std::vector<double> factors(kPoints);
    for (double& factor : factors) factor = (random.below(2) == 0 ? 1.0 : -1.0) * random.between(0.5F, 1.5F);
    std::vector<Exact> weights(kPoints);
    for (size_t n = 0; n < kPoints; ++n) {
      for (size_t k = 0; k < kPoints; ++k) weights[n] += factors[k] * roots_[k * n % kPoints];
    }
    for (size_t transform = 0; transform < transforms_; ++transform) {
      const auto* signal = &signals_[transform * kPoints];
      const auto* spectrum = &spectra_[transform * kPoints];
      Exact combined;
      Exact expected;
      for (size_t i = 0; i < kPoints; ++i) {
        combined += factors[i] * Exact{spectrum[i]};
        expected += product(signal[i], weights[i]);
      }
      if (!(std::abs(combined - expected) <= 1e-3)) wrong("a combination of", transform);
    }
  }

  size_t transforms_;
  Numbers signals_;
  Numbers spectra_;
  Numbers back_;
  std::vector<Exact> roots_;
  Kernel forward_;
  Kernel backward_;
  Buffer on_device_signals_;
  Buffer on_device_spectra_;
  Buffer on_device_back_;
  Buffer on_device_roots_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Fft>(argc, argv,
                           {.name = "fft",
                            .what = "Fourier transforms of 512 complex numbers in single precision, and back",
                            .size = 16384,
                            .size_is = "transforms",
                            .iterations = 10,
                            .quick_size = 512});
}
