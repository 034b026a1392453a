// A made-up video: a texture that drifts, patches of it that move their own ways, and noise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "frame/random.hpp"

namespace encoder {

using Picture = std::vector<std::uint8_t>;  // brightness, row by row

class Video {
 public:
  Video(size_t width, size_t height) : width_{width}, height_{height}, texture_(kSide * kSide) {
    workload::Random random{1};
    for (auto& value : texture_) value = static_cast<int>(random.below(256));
    for (int times = 0; times < 3; ++times) blur();
    // Blurring leaves little contrast.
    const auto [low, high] = std::minmax_element(texture_.begin(), texture_.end());
    const int darkest = *low;
    const int range = std::max(1, *high - *low);
    for (auto& value : texture_) value = 24 + (value - darkest) * 200 / range;
  }

  Picture picture(unsigned frame) const {
    Picture picture(width_ * height_);
    for (size_t y = 0; y < height_; ++y) {
      for (size_t x = 0; x < width_; ++x) picture[y * width_ + x] = clipped(at(x + 3 * frame, y + frame));
    }
    for (unsigned patch = 0; patch < 6; ++patch) draw_patch(picture, patch, frame);
    workload::Random random{1000 + frame};
    for (auto& value : picture) value = clipped(value + static_cast<int>(random.below(5)) - 2);
    return picture;
  }

 private:
  static constexpr size_t kSide = 512;

  static std::uint8_t clipped(int value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }
  int at(size_t x, size_t y) const { return texture_[y % kSide * kSide + x % kSide]; }

  void blur() {
    const auto before = texture_;
    for (size_t y = 0; y < kSide; ++y) {
      for (size_t x = 0; x < kSide; ++x) {
        int sum = 0;
        for (size_t row = 0; row < 3; ++row) {
          for (size_t column = 0; column < 3; ++column)
            sum += before[(y + row + kSide - 1) % kSide * kSide + (x + column + kSide - 1) % kSide];
        }
        texture_[y * kSide + x] = sum * 16 / 9;
      }
    }
  }

  void draw_patch(Picture& picture, unsigned patch, unsigned frame) const {
    const size_t side = height_ / 5;
    const size_t left = (patch * 97 + frame * (5 + patch)) % width_;
    const size_t top = (patch * 61 + frame * (9 - patch)) % height_;
    for (size_t y = 0; y < side; ++y) {
      for (size_t x = 0; x < side; ++x) {
        const size_t to = (top + y) % height_ * width_ + (left + x) % width_;
        picture[to] = clipped(at(x + 100 * patch, y + 50 * patch) + 20);
      }
    }
  }

  size_t width_;
  size_t height_;
  std::vector<int> texture_;
};

}  // namespace encoder
