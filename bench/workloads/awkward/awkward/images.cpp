// Images: written, sampled through a sampler object, copied, mapped and read.
#include <algorithm>
#include <array>

#include "awkward/awkward/part.hpp"

namespace awkward {
namespace {

using Sampler = Owned<cl_sampler, clReleaseSampler>;
using Sizes = std::array<size_t, 3>;

constexpr int kWidth = 250;  // a row isn't a multiple of anything
constexpr size_t kChannels = 4;

Sampler make_sampler(const Frame& frame, cl_addressing_mode addressing, cl_filter_mode filter) {
  cl_int code = CL_SUCCESS;
  Sampler sampler{clCreateSampler(frame.context(), CL_FALSE, addressing, filter, &code)};
  check(code, "clCreateSampler");
  return sampler;
}

Buffer make_image(const Frame& frame, cl_channel_type type, int height) {
  const cl_image_format format{CL_RGBA, type};
  cl_image_desc shape{};
  shape.image_type = CL_MEM_OBJECT_IMAGE2D;
  shape.image_width = kWidth;
  shape.image_height = static_cast<size_t>(height);
  cl_int code = CL_SUCCESS;
  Buffer image{clCreateImage(frame.context(), CL_MEM_READ_WRITE, &format, &shape, nullptr, &code)};
  check(code, "clCreateImage");
  return image;
}

class Images : public Part {
 public:
  Images(Frame& frame, size_t words)
      : height_{static_cast<int>(std::min<size_t>(words / 1024 + 3, 2048))},
        shift_{frame.kernel("shift_image")},
        between_{frame.kernel("sample_between")},
        nearest_{make_sampler(frame, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST)},
        linear_{make_sampler(frame, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_LINEAR)},
        from_{make_image(frame, CL_UNSIGNED_INT8, height_)},
        to_{make_image(frame, CL_UNSIGNED_INT8, height_)},
        smooth_{make_image(frame, CL_FLOAT, height_)},
        buffer_{frame.buffer_of<cl_uint>(pixels())},
        sampled_{frame.buffer_of<float>(pixels())} {}

  void round(Frame& frame, unsigned number, Checksum& checksum) override {
    move_pixels(frame, number, checksum);
    sample_between_pixels(frame, number);
  }

 private:
  size_t pixels() const { return static_cast<size_t>(kWidth * height_); }
  Sizes all() const { return {static_cast<size_t>(kWidth), static_cast<size_t>(height_), 1}; }
  static constexpr Sizes kCorner{0, 0, 0};

  template <class... Args>
  void launch(const Frame& frame, const Kernel& kernel, const Args&... args) const {
    cl_uint index = 0;
    (check(clSetKernelArg(kernel.get(), index++, sizeof args, &args), "clSetKernelArg"), ...);
    const Sizes size = all();
    check(clEnqueueNDRangeKernel(frame.queue(), kernel.get(), 2, nullptr, size.data(), nullptr, 0, nullptr, nullptr),
          "clEnqueueNDRangeKernel");
  }

  // A pixel is a word here: four channels of a byte each.
  void move_pixels(const Frame& frame, unsigned number, Checksum& checksum) {
    const Words input = random_words(pixels(), 9000 + number);
    const int dx = static_cast<int>(number % 9) - 4;
    const int dy = static_cast<int>(number % 5) - 2;
    check(clEnqueueWriteImage(frame.queue(), from_.get(), CL_TRUE, kCorner.data(), all().data(), 0, 0, input.data(), 0,
                              nullptr, nullptr),
          "clEnqueueWriteImage");
    launch(frame, shift_, from_.get(), nearest_.get(), to_.get(), cl_int{dx}, cl_int{dy});
    check(clEnqueueCopyImageToBuffer(frame.queue(), to_.get(), buffer_.get(), kCorner.data(), all().data(), 0, 0,
                                     nullptr, nullptr),
          "clEnqueueCopyImageToBuffer");
    Words copied(pixels());
    Commands{frame.queue()}.read(buffer_, copied);
    const Words expected = moved(input, dx, dy);
    const Words read = read_lower_half(frame);
    const Words mapped = map_whole(frame);
    expect_words("an image in a buffer", copied, expected);
    expect_words("an image that was mapped", mapped, expected);
    expect_words("half of an image", read,
                 Words(expected.end() - static_cast<std::ptrdiff_t>(read.size()), expected.end()));
    checksum.add(copied);
  }

  Words read_lower_half(const Frame& frame) const {
    const size_t skipped = static_cast<size_t>(height_) / 2;
    const Sizes from{0, skipped, 0};
    const Sizes region{static_cast<size_t>(kWidth), static_cast<size_t>(height_) - skipped, 1};
    Words words(region[0] * region[1]);
    check(clEnqueueReadImage(frame.queue(), to_.get(), CL_TRUE, from.data(), region.data(), 0, 0, words.data(), 0,
                             nullptr, nullptr),
          "clEnqueueReadImage");
    return words;
  }

  Words map_whole(const Frame& frame) const {
    size_t pitch = 0;
    cl_int code = CL_SUCCESS;
    void* pointer = clEnqueueMapImage(frame.queue(), to_.get(), CL_TRUE, CL_MAP_READ, kCorner.data(), all().data(),
                                      &pitch, nullptr, 0, nullptr, nullptr, &code);
    check(code, "clEnqueueMapImage");
    Words words;
    for (int y = 0; y < height_; ++y) {
      const auto* row =
          reinterpret_cast<const cl_uint*>(static_cast<const char*>(pointer) + static_cast<size_t>(y) * pitch);
      words.insert(words.end(), row, row + kWidth);
    }
    check(clEnqueueUnmapMemObject(frame.queue(), to_.get(), pointer, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
    return words;
  }

  Words moved(const Words& input, int dx, int dy) const {
    Words result;
    for (int y = 0; y < height_; ++y) {
      for (int x = 0; x < kWidth; ++x) {
        const int from_x = std::clamp(x + dx, 0, kWidth - 1);
        const int from_y = std::clamp(y + dy, 0, height_ - 1);
        const cl_uint pixel = input[static_cast<size_t>(from_y * kWidth + from_x)];
        cl_uint changed = 0;
        for (cl_uint channel = 0; channel < kChannels; ++channel)
          changed |= (((pixel >> (8 * channel)) + channel + 1) & 255) << (8 * channel);
        result.push_back(changed);
      }
    }
    return result;
  }

  // Devices interpolate with as few as eight bits, each in its own way: near is right, and the checksum leaves it out.
  void sample_between_pixels(const Frame& frame, unsigned number) {
    Random random{10000 + number};
    std::vector<float> input(pixels() * kChannels);
    for (float& value : input) value = random.between(0, 1);
    check(clEnqueueWriteImage(frame.queue(), smooth_.get(), CL_TRUE, kCorner.data(), all().data(), 0, 0, input.data(),
                              0, nullptr, nullptr),
          "clEnqueueWriteImage");
    launch(frame, between_, smooth_.get(), linear_.get(), sampled_.get());
    std::vector<float> result(pixels());
    check(clEnqueueReadBuffer(frame.queue(), sampled_.get(), CL_TRUE, 0, result.size() * sizeof(float), result.data(),
                              0, nullptr, nullptr),
          "clEnqueueReadBuffer");
    std::vector<float> expected;
    const auto at = [&](int x, int y) {
      return input[static_cast<size_t>(std::min(y, height_ - 1) * kWidth + std::min(x, kWidth - 1)) * kChannels];
    };
    for (int y = 0; y < height_; ++y) {
      for (int x = 0; x < kWidth; ++x)
        expected.push_back((at(x, y) + at(x + 1, y) + at(x, y + 1) + at(x + 1, y + 1)) / 4);
    }
    workload::expect_close("an average of pixels", result, expected, 0, 0.01);
  }

  int height_;
  Kernel shift_;
  Kernel between_;
  Sampler nearest_;
  Sampler linear_;
  Buffer from_;
  Buffer to_;
  Buffer smooth_;
  Buffer buffer_;
  Buffer sampled_;
};

}  // namespace

std::unique_ptr<Part> make_images(Frame& frame, size_t words) { return std::make_unique<Images>(frame, words); }

}  // namespace awkward
