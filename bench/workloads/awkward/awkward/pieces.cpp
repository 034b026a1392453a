// Sub-buffers: one memory under several handles, the whole one released while its pieces are in use.
#include <algorithm>

#include "awkward/awkward/part.hpp"

namespace awkward {
namespace {

constexpr size_t kPieces = 4;

class Pieces : public Part {
 public:
  Pieces(Frame& frame, size_t words)
      : scramble_{frame.kernel("scramble")}, combine_{frame.kernel("combine")}, commands_{frame.queue()} {
    cl_uint bits = 0;
    check(clGetDeviceInfo(frame.device(), CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof bits, &bits, nullptr),
          "clGetDeviceInfo");
    const size_t step = std::max<size_t>(1, bits / 8 / sizeof(cl_uint));
    piece_words_ = std::max<size_t>(1, words / kPieces / step) * step;
  }

  void round(Frame& frame, unsigned number, Checksum& checksum) override {
    Words all = random_words(kPieces * piece_words_, 8000 + number);
    auto whole = make_buffer(frame, all.size());
    std::vector<Buffer> pieces;
    for (size_t i = 0; i < kPieces; ++i) pieces.push_back(piece(whole, i, 1));
    const Buffer middle = piece(whole, 1, 2);
    commands_.write(whole, all);
    commands_.scramble(scramble_, whole, number, all.size());
    for (size_t i = 0; i < kPieces; ++i)
      commands_.scramble(scramble_, pieces[i], number + static_cast<cl_uint>(i), piece_words_);
    commands_.scramble(scramble_, middle, number + 50, 2 * piece_words_);
    commands_.combine(combine_, pieces[1], pieces[2], pieces[3], piece_words_);
    Words result(all.size());
    commands_.read(whole, result);
    commands_.finish();

    scramble(all, number);
    for (size_t i = 0; i < kPieces; ++i) {
      Words part = part_of(all, i, 1);
      scramble(part, number + static_cast<cl_uint>(i));
      put(part, i, all);
    }
    Words both = part_of(all, 1, 2);
    scramble(both, number + 50);
    put(both, 1, all);
    put(combined(part_of(all, 1, 1), part_of(all, 2, 1)), 3, all);
    expect_words("a buffer changed through its pieces", result, all);
    checksum.add(result);

    whole.reset();
    commands_.scramble(scramble_, middle, number + 60, 2 * piece_words_);
    commands_.copy(pieces[1], pieces[0], 0, 0, piece_words_);
    Words last(piece_words_);
    commands_.read(pieces[0], last);
    commands_.finish();
    Words expected = part_of(all, 1, 2);
    scramble(expected, number + 60);
    expected.resize(piece_words_);
    expect_words("a piece of a released buffer", last, expected);
    checksum.add(last);
  }

 private:
  Buffer piece(const Buffer& whole, size_t first, size_t count) const {
    const cl_buffer_region region{first * piece_words_ * sizeof(cl_uint), count * piece_words_ * sizeof(cl_uint)};
    cl_int code = CL_SUCCESS;
    Buffer made{clCreateSubBuffer(whole.get(), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code)};
    check(code, "clCreateSubBuffer");
    return made;
  }
  Words part_of(const Words& all, size_t first, size_t count) const {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * piece_words_);
    return {begin, begin + static_cast<std::ptrdiff_t>(count * piece_words_)};
  }
  void put(const Words& part, size_t first, Words& all) const {
    std::copy(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(first * piece_words_));
  }

  Kernel scramble_;
  Kernel combine_;
  Commands commands_;
  size_t piece_words_ = 0;
};

}  // namespace

std::unique_ptr<Part> make_pieces(Frame& frame, size_t words) { return std::make_unique<Pieces>(frame, words); }

}  // namespace awkward
