// The encoder again, on the CPU and one pixel at a time.
#pragma once

#include "crane/encoder/video.hpp"
#include "opencl.hpp"

namespace encoder {

inline constexpr int kQuantiser = 12;

struct Encoded {
  std::vector<cl_short> vectors;  // across and down, for each macroblock
  std::vector<cl_short> levels;   // for each pixel's place
};

class Reference {
 public:
  Reference(size_t width, size_t height)
      : width_{static_cast<int>(width)}, height_{static_cast<int>(height)}, decoded_(width * height, 128) {}

  Encoded encode(const Picture& source);

 private:
  struct Vector {
    int x;
    int y;
  };
  void transform(const Picture& source, const Picture& before, int left, int top, Vector vector, Encoded& encoded);

  int width_;
  int height_;
  Picture decoded_;
};

}  // namespace encoder
