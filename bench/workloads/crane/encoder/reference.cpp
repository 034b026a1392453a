#include "crane/encoder/reference.hpp"

#include <array>
#include <cstdlib>

namespace encoder {
namespace {

constexpr int kVectorCost = 2;
constexpr std::array<std::array<int, 8>, 8> kBasis{{{64, 64, 64, 64, 64, 64, 64, 64},
                                                    {89, 75, 50, 18, -18, -50, -75, -89},
                                                    {83, 36, -36, -83, -83, -36, 36, 83},
                                                    {75, -18, -89, -50, 50, 89, 18, -75},
                                                    {64, -64, -64, 64, 64, -64, -64, 64},
                                                    {50, -89, 18, 75, -75, -18, 89, -50},
                                                    {36, -83, 83, -36, -36, 83, -83, 36},
                                                    {18, -50, 75, -89, 89, -75, 50, -18}}};

// A picture with its edges repeated outwards, so that a search needs no clamping.
class Padded {
 public:
  Padded(const Picture& picture, int width, int height)
      : stride_{width + 2 * kMargin}, pixels_(static_cast<size_t>(stride_ * (height + 2 * kMargin))) {
    for (int y = -kMargin; y < height + kMargin; ++y) {
      for (int x = -kMargin; x < width + kMargin; ++x) {
        pixels_[static_cast<size_t>((y + kMargin) * stride_ + x + kMargin)] =
            picture[static_cast<size_t>(std::clamp(y, 0, height - 1) * width + std::clamp(x, 0, width - 1))];
      }
    }
  }
  const std::uint8_t* at(int x, int y) const {
    return &pixels_[static_cast<size_t>((y + kMargin) * stride_ + x + kMargin)];
  }

 private:
  static constexpr int kMargin = 20;  // the longest vector has 18 pixels
  int stride_;
  Picture pixels_;
};

Picture halved(const Picture& picture, int width, int height) {
  Picture result;
  result.reserve(picture.size() / 4);
  for (int y = 0; y < height; y += 2) {
    for (int x = 0; x < width; x += 2) {
      const auto* from = &picture[static_cast<size_t>(y * width + x)];
      result.push_back(static_cast<std::uint8_t>((from[0] + from[1] + from[width] + from[width + 1] + 2) >> 2));
    }
  }
  return result;
}

template <int kSide>
int difference(const Padded& a, int ax, int ay, const Padded& b, int bx, int by) {
  int sum = 0;
  for (int row = 0; row < kSide; ++row) {
    const auto* left = a.at(ax, ay + row);
    const auto* right = b.at(bx, by + row);
    for (int column = 0; column < kSide; ++column) sum += std::abs(left[column] - right[column]);
  }
  return sum;
}

}  // namespace

Encoded Reference::encode(const Picture& source) {
  const Picture before = decoded_;
  const Padded whole_source{source, width_, height_};
  const Padded whole_before{before, width_, height_};
  const Padded half_source{halved(source, width_, height_), width_ / 2, height_ / 2};
  const Padded half_before{halved(before, width_, height_), width_ / 2, height_ / 2};
  Encoded encoded;
  encoded.levels.resize(source.size());
  // The first of the best, row by row.
  const auto best = [](Vector center, int reach, auto cost_of) {
    Vector found{};
    int lowest = -1;
    for (int y = center.y - reach; y <= center.y + reach; ++y) {
      for (int x = center.x - reach; x <= center.x + reach; ++x) {
        const int cost = cost_of(x, y) + kVectorCost * (std::abs(x) + std::abs(y));
        if (lowest >= 0 && cost >= lowest) continue;
        lowest = cost;
        found = {x, y};
      }
    }
    return found;
  };
  for (int top = 0; top < height_; top += 16) {
    for (int left = 0; left < width_; left += 16) {
      const Vector coarse = best({0, 0}, 8, [&](int x, int y) {
        return difference<8>(half_source, left / 2, top / 2, half_before, left / 2 + x, top / 2 + y);
      });
      const Vector vector = best({2 * coarse.x, 2 * coarse.y}, 2, [&](int x, int y) {
        return difference<16>(whole_source, left, top, whole_before, left + x, top + y);
      });
      encoded.vectors.push_back(static_cast<cl_short>(vector.x));
      encoded.vectors.push_back(static_cast<cl_short>(vector.y));
      for (int block = 0; block < 4; ++block)
        transform(source, before, left + block % 2 * 8, top + block / 2 * 8, vector, encoded);
    }
  }
  return encoded;
}

// Columns first, where the kernel has rows first.
void Reference::transform(const Picture& source, const Picture& before, int left, int top, Vector vector,
                          Encoded& encoded) {
  using Block = std::array<std::array<int, 8>, 8>;
  Block predicted;
  Block block;
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 8; ++x) {
      const int from_x = std::clamp(left + x + vector.x, 0, width_ - 1);
      const int from_y = std::clamp(top + y + vector.y, 0, height_ - 1);
      predicted[y][x] = before[static_cast<size_t>(from_y * width_ + from_x)];
      block[y][x] = source[static_cast<size_t>((top + y) * width_ + left + x)] - predicted[y][x];
    }
  }
  Block columns{};
  for (int v = 0; v < 8; ++v) {
    for (int y = 0; y < 8; ++y) {
      for (int x = 0; x < 8; ++x) columns[v][x] += kBasis[v][y] * block[y][x];
    }
  }
  Block dequantised{};
  for (int v = 0; v < 8; ++v) {
    for (int u = 0; u < 8; ++u) {
      int coefficient = 0;
      for (int x = 0; x < 8; ++x) coefficient += kBasis[u][x] * columns[v][x];
      // A third of a step upwards before what is left is cut off: small coefficients become nothing.
      const int magnitude = (std::abs(coefficient) + kQuantiser * (32768 / 3)) / (kQuantiser * 32768);
      const int level = coefficient < 0 ? -magnitude : magnitude;
      encoded.levels[static_cast<size_t>((top + v) * width_ + left + u)] = static_cast<cl_short>(level);
      dequantised[v][u] = level * kQuantiser;
    }
  }
  Block rows{};
  for (int v = 0; v < 8; ++v) {
    for (int u = 0; u < 8; ++u) {
      for (int x = 0; x < 8; ++x) rows[v][x] += kBasis[u][x] * dequantised[v][u];
    }
  }
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 8; ++x) {
      int sum = 0;
      for (int v = 0; v < 8; ++v) sum += kBasis[v][y] * rows[v][x];
      decoded_[static_cast<size_t>((top + y) * width_ + left + x)] =
          static_cast<std::uint8_t>(std::clamp(predicted[y][x] + ((sum + (1 << 14)) >> 15), 0, 255));
    }
  }
}

}  // namespace encoder
