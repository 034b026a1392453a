// A stage of a video encoder, frame by frame, as x264 does it in Crane's paper: the frame goes to the device, motion
// vectors and quantised coefficients come back, and the decoded picture stays there for the next frame.
#include <algorithm>

#include "crane/encoder/reference.hpp"
#include "crane/encoder/video.hpp"
#include "encoder.cl.hpp"
#include "frame/workload.hpp"

namespace {

using namespace workload;
using encoder::Encoded;
using encoder::Picture;
using Clock = std::chrono::steady_clock;

constexpr size_t kFrames = 60;  // then the video begins again, with nothing to refer to: all results repeat

size_t whole_macroblocks(size_t pixels) { return (pixels + 15) / 16 * 16; }

std::uint64_t checksum_of(const Encoded& encoded) {
  Checksum checksum;
  checksum.add(encoded.vectors);
  checksum.add(encoded.levels);
  return checksum.value();
}

class Encoder : public Workload {
 public:
  explicit Encoder(size_t size) : width_{whole_macroblocks(size * 16 / 9)}, height_{whole_macroblocks(size)} {
    const encoder::Video video{width_, height_};
    for (unsigned frame = 0; frame < kFrames; ++frame) pictures_.push_back(video.picture(frame));
    encoded_.vectors.resize(2 * macroblocks());
    encoded_.levels.resize(width_ * height_);
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels, "-DQUANTISER=" + std::to_string(encoder::kQuantiser));
    halve_ = frame.kernel("halve");
    search_coarse_ = frame.kernel("search_coarse");
    search_fine_ = frame.kernel("search_fine");
    transform_ = frame.kernel("transform");
    const size_t pixels = width_ * height_;
    source_ = frame.buffer_of<cl_uchar>(pixels, CL_MEM_READ_ONLY);
    reference_ = frame.buffer_of<cl_uchar>(pixels);
    decoded_ = frame.buffer_of<cl_uchar>(pixels);
    half_source_ = frame.buffer_of<cl_uchar>(pixels / 4);
    half_reference_ = frame.buffer_of<cl_uchar>(pixels / 4);
    coarse_ = frame.buffer_of<cl_short2>(macroblocks());
    vectors_ = frame.buffer_of<cl_short2>(macroblocks());
    levels_ = frame.buffer_of<cl_short>(pixels);
  }

  void iterate(Frame& frame) override {
    if (checksums_.empty()) start_ = Clock::now();
    const size_t number = checksums_.size() % kFrames;
    if (number == 0) forget(frame);
    frame.send(source_, pictures_[number]);
    const auto width = static_cast<cl_int>(width_);
    const auto height = static_cast<cl_int>(height_);
    frame.launch(halve_, {width_ / 2, height_ / 2}, {}, source_, half_source_, width);
    frame.launch(halve_, {width_ / 2, height_ / 2}, {}, reference_, half_reference_, width);
    frame.launch(search_coarse_, {width_ / 16 * 64, height_ / 16}, {64, 1}, half_source_, half_reference_, coarse_,
                 width / 2, height / 2);
    frame.launch(search_fine_, {width_ / 16 * 128, height_ / 16}, {128, 1}, source_, reference_, coarse_, vectors_,
                 width, height);
    frame.launch(transform_, {width_, height_}, {8, 8}, source_, reference_, vectors_, levels_, decoded_, width,
                 height);
    std::swap(reference_, decoded_);
    frame.fetch(vectors_, encoded_.vectors);
    frame.fetch(levels_, encoded_.levels);
    checksums_.push_back(checksum_of(encoded_));
    end_ = Clock::now();
  }

  void collect(Frame& frame) override {
    frame.report("frames_per_second",
                 static_cast<double>(checksums_.size()) / std::chrono::duration<double>(end_ - start_).count());
    const auto nothing = std::count(encoded_.levels.begin(), encoded_.levels.end(), 0);
    frame.report("levels_not_zero", 1 - static_cast<double>(nothing) / static_cast<double>(encoded_.levels.size()));
  }

  // Bit by bit, every frame: those of the first time the video is shown, and that each later time gives the same.
  void verify() const override {
    encoder::Reference reference{width_, height_};
    std::vector<std::uint64_t> expected;
    for (size_t number = 0; number < std::min(kFrames, checksums_.size()); ++number) {
      const Encoded encoded = reference.encode(pictures_[number]);
      expected.push_back(checksum_of(encoded));
      if (number == (checksums_.size() - 1) % kFrames) expect_last(encoded);
    }
    for (size_t number = 0; number < checksums_.size(); ++number) {
      if (checksums_[number] != expected[number % kFrames]) throw Wrong("frame " + std::to_string(number));
    }
  }
  void add_to(Checksum& checksum) const override { checksum.add(checksums_); }

 private:
  size_t macroblocks() const { return width_ / 16 * (height_ / 16); }

  // A grey picture to begin with.
  void forget(Frame& frame) {
    frame.timed(Phase::kernels, [&] {
      const cl_uchar grey = 128;
      check(clEnqueueFillBuffer(frame.queue(), reference_.get(), &grey, sizeof grey, 0, width_ * height_, 0, nullptr,
                                nullptr),
            "clEnqueueFillBuffer");
    });
  }

  // What differs is known for the frame that is still there; of the others only that they differ.
  void expect_last(const Encoded& expected) const {
    const auto same = [](const char* what, const std::vector<cl_short>& results, const std::vector<cl_short>& wanted) {
      const auto [result, want] = std::mismatch(results.begin(), results.end(), wanted.begin());
      if (result != results.end())
        throw Wrong("the last frame: " + std::string{what} + "[" + std::to_string(result - results.begin()) + "] is " +
                    std::to_string(*result) + ", not " + std::to_string(*want));
    };
    same("vectors", encoded_.vectors, expected.vectors);
    same("levels", encoded_.levels, expected.levels);
  }

  size_t width_;
  size_t height_;
  std::vector<Picture> pictures_;
  Encoded encoded_;                       // the last frame
  std::vector<std::uint64_t> checksums_;  // of all frames
  Clock::time_point start_;
  Clock::time_point end_;
  Kernel halve_;
  Kernel search_coarse_;
  Kernel search_fine_;
  Kernel transform_;
  Buffer source_;
  Buffer reference_;
  Buffer decoded_;
  Buffer half_source_;
  Buffer half_reference_;
  Buffer coarse_;
  Buffer vectors_;
  Buffer levels_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Encoder>(argc, argv,
                               {.name = "encoder",
                                .what = "A stage of a video encoder: motion search, transform, quantisation",
                                .size = 360,
                                .size_is = "rows of a picture, 16 to 9",
                                .iterations = 300,
                                .quick_size = 144});
}
