// A search of a key space for an MD5 digest, like SHOC's MD5Hash.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "crane/sizes.hpp"
#include "frame/workload.hpp"
#include "md5_hash.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kKeysPerItem = 64;
constexpr size_t kGranule = kKeysPerItem * 256;

using Digest = std::array<std::uint32_t, 4>;

// By RFC 1321, for messages that fit into one block.
Digest digest_of(const std::string& message) {
  static const auto constants = [] {
    std::array<std::uint32_t, 64> values{};
    for (size_t i = 0; i < 64; ++i)
      values[i] = static_cast<std::uint32_t>(std::floor(std::abs(std::sin(static_cast<double>(i + 1))) * 0x1p32));
    return values;
  }();
  constexpr std::array<std::array<int, 4>, 4> kShifts{
      {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};

  std::array<unsigned char, 64> block{};
  std::memcpy(block.data(), message.data(), message.size());
  block[message.size()] = 0x80;
  block[56] = static_cast<unsigned char>(message.size() * 8);
  std::array<std::uint32_t, 16> words{};
  for (size_t i = 0; i < block.size(); ++i) words[i / 4] |= std::uint32_t{block[i]} << (i % 4 * 8);

  constexpr Digest kStart{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  auto [a, b, c, d] = kStart;
  for (size_t i = 0; i < 64; ++i) {
    std::uint32_t mixed = 0;
    size_t word = 0;
    switch (i / 16) {
      case 0:
        mixed = (b & c) | (~b & d), word = i;
        break;
      case 1:
        mixed = (d & b) | (~d & c), word = 5 * i + 1;
        break;
      case 2:
        mixed = b ^ c ^ d, word = 3 * i + 5;
        break;
      default:
        mixed = c ^ (b | ~d), word = 7 * i;
        break;
    }
    const std::uint32_t turned = std::rotl(a + mixed + constants[i] + words[word % 16], kShifts[i / 16][i % 4]);
    a = std::exchange(d, std::exchange(c, std::exchange(b, b + turned)));
  }
  return {kStart[0] + a, kStart[1] + b, kStart[2] + c, kStart[3] + d};
}

std::string key_of(std::uint32_t number) {
  std::string key(8, 'a');
  for (char& letter : key) {
    letter = static_cast<char>('a' + number % 26);
    number /= 26;
  }
  return key;
}

class Md5Hash : public Workload {
 public:
  explicit Md5Hash(size_t size) : items_{round_up(size, kGranule) / kKeysPerItem}, folds_(items_) {
    secret_ = static_cast<cl_uint>(items_ * kKeysPerItem * 7 / 10);
    wanted_ = digest_of(key_of(secret_));
  }

  void prepare(Frame& frame) override {
    group_ = group_size(frame);
    frame.build(kKernels, define("GROUP", group_) + define("KEYS", kKeysPerItem));
    search_ = frame.kernel("search");
    on_device_found_ = frame.buffer_of<cl_uint>(1);
    on_device_folds_ = frame.buffer_of<cl_uint>(items_, CL_MEM_WRITE_ONLY);
  }
  void iterate(Frame& frame) override {
    frame.timed(Phase::to_device, [&] {
      const cl_uint nothing = ~cl_uint{0};
      check(clEnqueueFillBuffer(frame.queue(), on_device_found_.get(), &nothing, sizeof nothing, 0, sizeof nothing, 0,
                                nullptr, nullptr),
            "clEnqueueFillBuffer");
    });
    const cl_uint4 wanted{{wanted_[0], wanted_[1], wanted_[2], wanted_[3]}};
    frame.launch(search_, {items_}, {group_}, wanted, on_device_found_, on_device_folds_);
  }
  void collect(Frame& frame) override {
    frame.fetch(on_device_found_, found_);
    frame.fetch(on_device_folds_, folds_);
  }

  // The digests of work-items all over the space; all of them would take too long.
  void verify() const override {
    if (digest_of("abc") != Digest{0x98500190, 0xb04fd23c, 0x7d3f96d6, 0x727fe128})
      throw Failure("the reference doesn't know MD5");
    expect_same("key", found_, std::vector{secret_});
    constexpr size_t kChecked = 16384;
    const size_t step = items_ / kChecked | 1;  // odd, so that all places in a group have their turn
    for (size_t item = 0; item < items_; item += step) check_item(item);
  }
  void add_to(Checksum& checksum) const override {
    checksum.add(found_);
    checksum.add(folds_);
  }

 private:
  void check_item(size_t item) const {
    std::uint32_t fold = 0;
    for (size_t i = 0; i < kKeysPerItem; ++i) {
      const auto [a, b, c, d] = digest_of(key_of(static_cast<std::uint32_t>(i * items_ + item)));
      fold += a ^ b ^ c ^ d;
    }
    if (folds_[item] != fold) throw Wrong("digests of work-item " + std::to_string(item));
  }

  size_t items_;
  size_t group_ = 0;
  cl_uint secret_ = 0;
  Digest wanted_{};
  std::vector<cl_uint> found_ = std::vector<cl_uint>(1);
  std::vector<cl_uint> folds_;
  Kernel search_;
  Buffer on_device_found_;
  Buffer on_device_folds_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Md5Hash>(argc, argv,
                               {.name = "md5_hash",
                                .what = "Search of a key space for an MD5 digest",
                                .size = size_t{1} << 25,
                                .size_is = "keys",
                                .iterations = 3,
                                .quick_size = size_t{1} << 20});
}
