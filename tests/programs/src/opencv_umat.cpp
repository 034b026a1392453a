// An OpenCV pipeline on UMat, which OpenCV runs through OpenCL, each step checked against the same step on Mat.
// usage: opencv_umat WIDTH HEIGHT ROUNDS
// Prints the device, and for each step a hash of its output; ends non-zero if OpenCL is off or a step is wrong.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <opencv2/core.hpp>
#include <opencv2/core/ocl.hpp>
#include <opencv2/imgproc.hpp>
#include <string>
#include <vector>

namespace {

struct Step {
  const char* name;
  double allowed;  // largest difference from the CPU's result
  std::function<void(cv::InputArray, cv::OutputArray)> apply;
};

const std::vector<Step>& steps() {
  static const std::vector<Step> all = {
      {"gray", 1, [](auto in, auto out) { cv::cvtColor(in, out, cv::COLOR_BGR2GRAY); }},
      {"hsv", 2, [](auto in, auto out) { cv::cvtColor(in, out, cv::COLOR_BGR2HSV); }},
      {"gaussian", 1,
       [](auto in, auto out) {
         cv::GaussianBlur(in, out, {7, 7}, 1.5);
       }},
      {"box", 1,
       [](auto in, auto out) {
         cv::blur(in, out, {5, 5});
       }},
      {"median", 0, [](auto in, auto out) { cv::medianBlur(in, out, 3); }},
      {"bilateral", 1, [](auto in, auto out) { cv::bilateralFilter(in, out, 5, 30, 3); }},
      {"dilate", 0,
       [](auto in, auto out) {
         cv::dilate(in, out, cv::Mat(), {-1, -1}, 2);
       }},
      {"sobel", 1, [](auto in, auto out) { cv::Sobel(in, out, CV_16S, 1, 0); }},
      {"half", 1, [](auto in, auto out) { cv::resize(in, out, {}, 0.5, 0.5, cv::INTER_AREA); }},
      {"warp", 2,
       [](auto in, auto out) {
         const cv::Mat turn = (cv::Mat_<double>(2, 3) << 1, 0.125, -4, -0.125, 1, 6);
         cv::warpAffine(in, out, turn, in.size(), cv::INTER_NEAREST);
       }},
      {"threshold", 0, [](auto in, auto out) { cv::threshold(in, out, 100, 255, cv::THRESH_BINARY); }},
      {"difference", 0, [](auto in, auto out) { cv::absdiff(in, cv::Scalar(10, 128, 250), out); }},
      {"float", 1e-4,
       [](auto in, auto out) {
         cv::UMat wide;
         in.getUMat().convertTo(wide, CV_32F, 1 / 255.0);
         cv::multiply(wide, wide, out, 2.0);
       }},
      {"transpose", 0, [](auto in, auto out) { cv::transpose(in, out); }},
  };
  return all;
}

// FNV-1a over the rows
std::uint64_t hash(const cv::Mat& image) {
  std::uint64_t value = 14695981039346656037u;
  for (int row = 0; row < image.rows; ++row) {
    const unsigned char* bytes = image.ptr(row);
    for (std::size_t i = 0; i < image.cols * image.elemSize(); ++i) value = (value ^ bytes[i]) * 1099511628211u;
  }
  return value;
}

cv::Mat test_image(int width, int height) {
  cv::Mat image(height, width, CV_8UC3);
  cv::RNG random(20);
  random.fill(image, cv::RNG::UNIFORM, 0, 64);
  cv::circle(image, {width / 2, height / 2}, height / 3, {40, 180, 250}, -1);
  cv::rectangle(image, {width / 8, height / 8}, {width / 3, height / 2}, {200, 90, 10}, -1);
  return image;
}

// Most pixels must agree within what the step allows: rounding at an edge may differ from the CPU's code.
bool close_enough(const cv::Mat& ours, const cv::Mat& reference, double allowed) {
  if (ours.size() != reference.size() || ours.type() != reference.type()) return false;
  cv::Mat difference;
  cv::absdiff(ours, reference, difference);
  const cv::Mat wrong = difference.reshape(1) > allowed;
  return cv::countNonZero(wrong) <= static_cast<int>(wrong.total() / 500);
}

bool run_own_kernel(const cv::UMat& image) {
  const cv::ocl::ProgramSource source(
      "__kernel void invert(__global uchar* p, int n)"
      "{ int i = get_global_id(0); if (i < n) p[i] = 255 - p[i]; }");
  cv::UMat inverted = image.clone();
  int count = static_cast<int>(inverted.total() * inverted.elemSize());
  std::size_t global = count;
  cv::ocl::Kernel kernel("invert", source);
  kernel.args(cv::ocl::KernelArg::PtrReadWrite(inverted), count);
  bool ok = kernel.run(1, &global, nullptr, false);  // not blocking: OpenCV frees the arguments in an event callback
  cv::Mat expected, difference;
  cv::bitwise_not(image.getMat(cv::ACCESS_READ), expected);
  cv::absdiff(inverted.getMat(cv::ACCESS_READ), expected, difference);
  std::printf("own kernel %016" PRIx64 "\n", hash(inverted.getMat(cv::ACCESS_READ)));
  return ok && cv::countNonZero(difference.reshape(1)) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: %s WIDTH HEIGHT ROUNDS\n", argv[0]), 2;
  const cv::Mat image = test_image(std::atoi(argv[1]), std::atoi(argv[2]));
  cv::ocl::setUseOpenCL(true);
  if (!cv::ocl::useOpenCL()) return std::fprintf(stderr, "OpenCV does not use OpenCL\n"), 1;
  const auto& device = cv::ocl::Device::getDefault();
  std::printf("device %s\n", device.name().c_str());
  int bad = 0;
  for (int round = 0; round < std::atoi(argv[3]); ++round) {
    cv::UMat on_device;
    image.copyTo(on_device);
    for (const auto& step : steps()) {
      cv::UMat result;
      step.apply(on_device, result);
      const cv::Mat ours = result.getMat(cv::ACCESS_READ);
      if (round > 0) continue;
      cv::Mat reference;
      cv::ocl::setUseOpenCL(false);
      step.apply(image, reference);
      cv::ocl::setUseOpenCL(true);
      const bool ok = close_enough(ours, reference, step.allowed);
      bad += !ok;
      std::printf("%s %016" PRIx64 "%s\n", step.name, hash(ours), ok ? "" : " WRONG");
    }
    if (round == 0) bad += !run_own_kernel(on_device);
  }
  return bad ? 1 : 0;
}
