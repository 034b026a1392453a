// Programs that map their memory, and memory of the program's own.
#include <sys/mman.h>

#include <atomic>
#include <numeric>
#include <random>
#include <thread>

#include "subject.hpp"

namespace subject {

void mapped() {
  constexpr size_t kWords = 1 << 18;
  Subject subject;
  cl_kernel fill = subject.kernel("fill");
  cl_kernel advance = subject.kernel("advance");
  cl_mem memory = subject.buffer(kWords);
  cl_mem other = subject.buffer(kWords);
  subject.run(fill, memory, 0, kWords);
  subject.run(fill, other, 1, kWords);
  cl_int code = CL_SUCCESS;
  auto* words = static_cast<cl_uint*>(clEnqueueMapBuffer(subject.queue, memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                                         kWords / 2 * sizeof(cl_uint), 0, nullptr, nullptr, &code));
  check(code, "clEnqueueMapBuffer");
  for (size_t i = 0; i < kWords / 2; ++i) {
    if (words[i] != filled(static_cast<cl_uint>(i), 0)) fail("a mapping shows something else");
  }
  std::atomic<bool> over{false};
  cl_uint written = 0;
  std::thread writer{[&] {
    for (; !over; ++written) {
      for (size_t i = 0; i < kWords / 2; i += 256) words[i] = written;
      std::this_thread::sleep_for(std::chrono::microseconds{50});  // others need the core, too
    }
  }};
  Rounds rounds;
  while (rounds.next()) {
    subject.run(advance, other, rounds.begin(), kWords);
    subject.finish();
  }
  over = true;
  writer.join();
  check(clEnqueueUnmapMemObject(subject.queue, memory, words, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
  const Words all = subject.read(memory, kWords);
  for (size_t i = 0; i < kWords; ++i) {
    const bool is_written = i < kWords / 2 && i % 256 == 0 && written != 0;
    const cl_uint expected = is_written ? written - 1 : filled(static_cast<cl_uint>(i), 0);
    if (all[i] != expected) fail("word " + std::to_string(i) + " isn't what was written while it was mapped");
  }
  expect_advanced(subject, other, kWords, kWords, 1, rounds.number());
  rounds.tell();
}

void unmapped() {
  constexpr size_t kWords = 1 << 20;
  constexpr size_t kBytes = kWords * sizeof(cl_uint);
  Subject subject;
  cl_kernel wait_a_while = subject.kernel("wait_a_while");
  cl_mem waited = subject.zeroes(256);
  cl_mem copy = subject.buffer(kWords);
  Rounds rounds;
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    cl_mem memory = subject.buffer(kWords);
    const auto map = [&](cl_bool blocking) {
      cl_int code = CL_SUCCESS;
      void* pointer = clEnqueueMapBuffer(subject.queue, memory, blocking, CL_MAP_READ | CL_MAP_WRITE, 0, kBytes, 0,
                                         nullptr, nullptr, &code);
      check(code, "clEnqueueMapBuffer");
      return static_cast<cl_uint*>(pointer);
    };
    const auto unmap = [&](cl_uint* words) {
      check(clEnqueueUnmapMemObject(subject.queue, memory, words, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
    };
    cl_uint* words = map(CL_TRUE);
    std::iota(words, words + kWords, round);
    std::this_thread::sleep_for(std::chrono::milliseconds{10});  // moves come mostly here
    subject.run(wait_a_while, waited, 1 << 16, 256);
    unmap(words);
    if (round % 2 == 0) unmap(map(CL_FALSE));  // what was written isn't there yet
    check(clEnqueueCopyBuffer(subject.queue, memory, copy, 0, 0, kBytes, 0, nullptr, nullptr), "clEnqueueCopyBuffer");
    check(clReleaseMemObject(memory), "clReleaseMemObject");
    const Words all = subject.read(copy, kWords);
    for (size_t i = 0; i < kWords; ++i) {
      if (all[i] != round + i) fail("word " + std::to_string(i) + " isn't what was written before the unmap");
    }
  }
  rounds.tell();
}

namespace {

// Memory of the program's own, and a buffer in it.
class Lent {
 public:
  Lent(const Subject& subject, size_t words) : subject_{subject}, words_{words} {
    start_ = static_cast<cl_uint*>(
        mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    cl_int code = CL_SUCCESS;
    memory = clCreateBuffer(subject.context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size(), start_, &code);
    check(code, "clCreateBuffer");
  }
  ~Lent() {
    check(clReleaseMemObject(memory), "clReleaseMemObject");
    munmap(start_, size());
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  cl_uint* map(cl_map_flags flags, size_t first, size_t words) const {
    cl_int code = CL_SUCCESS;
    void* mapped = clEnqueueMapBuffer(subject_.queue, memory, CL_TRUE, flags, first * sizeof(cl_uint),
                                      words * sizeof(cl_uint), 0, nullptr, nullptr, &code);
    check(code, "clEnqueueMapBuffer");
    if (mapped != start_ + first) fail("the program's own memory is mapped elsewhere");
    return start_ + first;
  }
  void unmap(cl_uint* mapped) const {
    check(clEnqueueUnmapMemObject(subject_.queue, memory, mapped, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
    subject_.finish();
  }

  cl_mem memory = nullptr;

 private:
  size_t size() const { return words_ * sizeof(cl_uint); }
  const Subject& subject_;
  const size_t words_;
  cl_uint* start_ = nullptr;
};

}  // namespace

void lent() {
  constexpr size_t kWords = 1 << 20;
  constexpr size_t kPart = kWords / 8;
  Subject subject;
  cl_kernel flip = subject.kernel("flip");
  const Lent lent{subject, kWords};
  Words expected(kWords);
  std::minstd_rand random{1};
  Rounds rounds;
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    const size_t first = random() % (kWords - kPart);
    cl_uint* words = lent.map(CL_MAP_WRITE, first, kPart);
    for (size_t i = 0; i < kPart; ++i) {
      words[i] = expected[first + i] = round + static_cast<cl_uint>(i);
      if (i % (kPart / 8) == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    lent.unmap(words);
    subject.run(flip, lent.memory, round, kWords);
    for (cl_uint& word : expected) word ^= round;
    words = lent.map(CL_MAP_READ, 0, kWords);
    if (!std::equal(expected.begin(), expected.end(), words)) fail("something that was written isn't there");
    lent.unmap(words);
  }
  rounds.tell();
}

void borrowed() {
  constexpr size_t kWords = 1 << 22;
  Subject subject;
  cl_kernel fill = subject.kernel("fill");
  Rounds rounds;
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    const Lent lent{subject, kWords};
    subject.run(fill, lent.memory, round, kWords);
    cl_uint* words = lent.map(CL_MAP_READ, 0, kWords);
    for (size_t i = 0; i < kWords; i += 997) {
      if (words[i] != filled(static_cast<cl_uint>(i), round)) fail("a word of memory that was lent");
    }
    lent.unmap(words);
  }
  rounds.tell();
}

}  // namespace subject
