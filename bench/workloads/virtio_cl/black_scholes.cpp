// BlackScholes of virtio-CL's paper, which runs it with 4 million options and, to see how its cost grows with the data,
// with 2 to 16 million.
#include <cmath>
#include <numbers>

#include "black_scholes.cl.hpp"
#include "frame/workload.hpp"

namespace {

using namespace workload;

constexpr size_t kGroup = 128;  // divides the numbers of options in the paper
constexpr float kRate = 0.02F;
constexpr float kVolatility = 0.30F;

double cumulative_normal(double d) { return 0.5 * std::erfc(-d / std::numbers::sqrt2); }

class BlackScholes : public Workload {
 public:
  explicit BlackScholes(size_t size)
      : stocks_(round_up(size, kGroup)),
        strikes_(stocks_.size()),
        years_(stocks_.size()),
        calls_(stocks_.size()),
        puts_(stocks_.size()) {
    Random random{1};
    for (float& value : stocks_) value = random.between(5, 30);
    for (float& value : strikes_) value = random.between(1, 100);
    for (float& value : years_) value = random.between(0.25F, 10);
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels);
    price_options_ = frame.kernel("price_options");
    on_device_stocks_ = frame.buffer_of<float>(stocks_.size(), CL_MEM_READ_ONLY);
    on_device_strikes_ = frame.buffer_of<float>(strikes_.size(), CL_MEM_READ_ONLY);
    on_device_years_ = frame.buffer_of<float>(years_.size(), CL_MEM_READ_ONLY);
    on_device_calls_ = frame.buffer_of<float>(calls_.size(), CL_MEM_WRITE_ONLY);
    on_device_puts_ = frame.buffer_of<float>(puts_.size(), CL_MEM_WRITE_ONLY);
    frame.send(on_device_stocks_, stocks_);
    frame.send(on_device_strikes_, strikes_);
    frame.send(on_device_years_, years_);
  }
  void iterate(Frame& frame) override {
    frame.launch(price_options_, {stocks_.size()}, {kGroup}, on_device_stocks_, on_device_strikes_, on_device_years_,
                 on_device_calls_, on_device_puts_, kRate, kVolatility);
  }
  void collect(Frame& frame) override {
    frame.fetch(on_device_calls_, calls_);
    frame.fetch(on_device_puts_, puts_);
  }

  void verify() const override {
    for (size_t index = 0; index < stocks_.size(); ++index) {
      const double stock = stocks_[index];
      const double strike = strikes_[index];
      const double time = years_[index];
      const double deviation = kVolatility * std::sqrt(time);
      const double d1 = (std::log(stock / strike) + kRate * time) / deviation + deviation / 2;
      const double strike_today = strike * std::exp(-kRate * time);
      const double call = stock * cumulative_normal(d1) - strike_today * cumulative_normal(d1 - deviation);
      const double bound = 1e-6 * (stock + strike);
      expect_near("call", index, calls_[index], call, bound);
      // A call less a put is a promise to buy at the strike.
      expect_near("put", index, puts_[index], call - stock + strike_today, bound);
    }
  }
  void add_to(Checksum& checksum) const override {
    checksum.add(calls_);
    checksum.add(puts_);
  }

 private:
  std::vector<float> stocks_;
  std::vector<float> strikes_;
  std::vector<float> years_;
  std::vector<float> calls_;
  std::vector<float> puts_;
  Kernel price_options_;
  Buffer on_device_stocks_;
  Buffer on_device_strikes_;
  Buffer on_device_years_;
  Buffer on_device_calls_;
  Buffer on_device_puts_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<BlackScholes>(argc, argv,
                                    {.name = "black_scholes",
                                     .what = "What options are worth, by Black and Scholes's formula",
                                     .size = 4'000'000,
                                     .size_is = "options",
                                     .iterations = 16,
                                     .quick_size = 65536});
}
