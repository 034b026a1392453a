// Buffers that stay mapped from one round to the next, while everything else goes on, and buffers in the program's own
// memory.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "awkward/awkward/part.hpp"

namespace awkward {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

class Mappings : public Part {
 public:
  Mappings(Frame& frame, size_t words)
      : words_{words},
        quarter_{words / 4},
        scramble_{frame.kernel("scramble")},
        queue_{frame.queue()},
        mapped_{make_buffer(frame, words, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR)},
        commands_{frame.queue()},
        host_{static_cast<cl_uint*>(std::aligned_alloc(4096, (words * sizeof(cl_uint) + 4095) / 4096 * 4096))} {
    if (host_ == nullptr) throw std::bad_alloc{};
    held_ = random_words(words_, 1);
    commands_.write(mapped_, held_);
    commands_.finish();
    const Words begin = random_words(words_, 2);
    std::copy(begin.begin(), begin.end(), host_.get());
    in_place_ = make_buffer(frame, words, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, host_.get());
    Words copied = begin;
    copied_ = make_buffer(frame, words, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, copied.data());
    std::fill(copied.begin(), copied.end(), 0);  // the device has its own now
    copied_expected_ = begin;
    in_place_expected_ = begin;
  }
  ~Mappings() override {
    if (pointer_ != nullptr) clEnqueueUnmapMemObject(queue_, mapped_.get(), pointer_, 0, nullptr, nullptr);
    clFinish(queue_);
  }

  void round(Frame&, unsigned number, Checksum& checksum) override {
    if (pointer_ != nullptr) finish_mapping(number, checksum);
    begin_mapping(number);
    use_own_memory(number, checksum);
    read_twice(number, checksum);
  }

 private:
  // Half of the buffer, from a quarter on; a first part is written now, a second one in the next round.
  void begin_mapping(unsigned number) {
    pointer_ = static_cast<cl_uint*>(commands_.map(mapped_, CL_MAP_READ | CL_MAP_WRITE, quarter_, 2 * quarter_));
    expect_mapped("what a mapping shows");
    write_mapped(0, random_words(quarter_, 6000 + number));
  }

  void finish_mapping(unsigned number, Checksum& checksum) {
    expect_mapped("what a mapping shows a round later");
    write_mapped(quarter_, random_words(quarter_, 7000 + number));
    commands_.unmap(mapped_, pointer_);
    pointer_ = nullptr;
    commands_.scramble(scramble_, mapped_, number, words_);
    Words result(words_);
    commands_.read(mapped_, result);
    commands_.finish();
    scramble(held_, number);
    expect_words("a buffer that was mapped", result, held_);
    checksum.add(result);
  }

  void expect_mapped(const char* what) const {
    const auto from = held_.begin() + static_cast<std::ptrdiff_t>(quarter_);
    expect_words(what, Words(pointer_, pointer_ + 2 * quarter_),
                 Words(from, from + static_cast<std::ptrdiff_t>(2 * quarter_)));
  }
  void write_mapped(size_t at, const Words& words) {
    std::copy(words.begin(), words.end(), pointer_ + at);
    std::copy(words.begin(), words.end(), held_.begin() + static_cast<std::ptrdiff_t>(quarter_ + at));
  }

  // Results show in the program's memory while the buffer is mapped, and what is written there goes to the device.
  void use_own_memory(unsigned number, Checksum& checksum) {
    commands_.scramble(scramble_, in_place_, number + 10, words_);
    auto* seen = static_cast<cl_uint*>(commands_.map(in_place_, CL_MAP_READ | CL_MAP_WRITE, 0, words_));
    if (seen != host_.get()) throw Wrong("a buffer in the program's memory is mapped elsewhere");
    scramble(in_place_expected_, number + 10);
    const Words result(host_.get(), host_.get() + words_);
    expect_words("the program's memory", result, in_place_expected_);
    checksum.add(result);
    for (size_t i = number % 7; i < words_; i += 7)
      host_.get()[i] = in_place_expected_[i] = static_cast<cl_uint>(i) * number;
    commands_.unmap(in_place_, seen);
  }

  // Two mappings at once that overlap and only read, one of them asked for without waiting.
  void read_twice(unsigned number, Checksum& checksum) {
    commands_.scramble(scramble_, copied_, number + 20, words_);
    scramble(copied_expected_, number + 20);
    Event ready;
    const auto* late = static_cast<const cl_uint*>(commands_.map(copied_, CL_MAP_READ, 0, 3 * quarter_, &ready));
    const auto* other = static_cast<const cl_uint*>(commands_.map(copied_, CL_MAP_READ, quarter_, words_ - quarter_));
    cl_event handle = ready.get();
    check(clWaitForEvents(1, &handle), "clWaitForEvents");
    Words result(words_);
    std::copy_n(other, words_ - quarter_, result.begin() + static_cast<std::ptrdiff_t>(quarter_));
    expect_same_part(late, result);
    std::copy_n(late, quarter_, result.begin());
    commands_.unmap(copied_, const_cast<cl_uint*>(late));
    commands_.unmap(copied_, const_cast<cl_uint*>(other));
    expect_words("a buffer mapped twice", result, copied_expected_);
    checksum.add(result);
  }
  void expect_same_part(const cl_uint* late, const Words& result) const {
    if (std::memcmp(late + quarter_, &result[quarter_], 2 * quarter_ * sizeof(cl_uint)) != 0)
      throw Wrong("two mappings of the same words differ");
  }

  size_t words_;
  size_t quarter_;
  Kernel scramble_;
  cl_command_queue queue_;
  Buffer mapped_;
  Commands commands_;
  Words held_;                           // what mapped_ holds
  cl_uint* pointer_ = nullptr;           // to its second and third quarter, from one round to the next
  std::unique_ptr<cl_uint, Free> host_;  // outlives in_place_
  Buffer in_place_;
  Words in_place_expected_;
  Buffer copied_;
  Words copied_expected_;
};

}  // namespace

std::unique_ptr<Part> make_mappings(Frame& frame, size_t words) { return std::make_unique<Mappings>(frame, words); }

}  // namespace awkward
