// Programs to be moved while they run. Each works until its standard input ends, checks everything at the end, and
// prints one line: how often it went round, the longest that one round took, and "right" or what is wrong.
//   busy [BUFFERS [MIB [DIRTY_MIB]]]   buffers of so many MiB, of the first of which a part is worked on all the time
//   scattered [BUFFERS [MIB [PAGES [MS]]]]   kernels of so many ms in turn on all buffers, each of which writes to some
//                pages here and there; tells how many there were in every tenth of a second, from when on
//   const        a kernel writes through a pointer to const
//   scope        a program with a program-scope variable
//   mapped       a region that is mapped for writing the whole time, and written by a thread
//   callback     callbacks that take long, and call back
//   create       objects made, built again and freed all the time
//   image        an image, of which a part is mapped and written, and then all of it
//   clock        the times of events never go back
//   enqueue [WORDS]   a thread that only enqueues; tells its longest calls: when, how long, and how often meanwhile
//                another thread took the core from it
//   backlog COUNT MS  so many kernels, each of about that long, are enqueued at once, and again for each line of input
//   count        as told by lines of input: `add` enqueues 1 more for every word, `ask` asks, makes and releases this
//                and that, `look` reads; prints what it read, or `done`
//   flip         pages that are changed and changed back all the time
//   swap         blocks of 32 bytes that are swapped within each page all the time
//   state        adds 1 to every word of a buffer for each line of input, and prints the words' sum
#include <CL/cl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Words = std::vector<cl_uint>;

constexpr const char* kSource = R"CLC(
kernel void fill(global uint* to, uint seed) { const uint i = get_global_id(0); to[i] = (i ^ seed) * 2654435761u; }
kernel void advance(global uint* words, uint step) {
  const uint i = get_global_id(0);
  words[i] = words[i] * 1664525u + 1013904223u + step;
}
kernel void sneak(global const uint* words, uint step) {
  const uint i = get_global_id(0);
  ((global uint*)words)[i] = words[i] * 1664525u + 1013904223u + step;
}
kernel void flip(global uint* words, uint mask) { words[get_global_id(0)] ^= mask; }
kernel void swap(global uint* words, uint blocks) {  // of each page; a work item for each word of a block
  global uint* block = words + get_global_id(0) / 8 * 1024 + get_global_id(0) % 8;
  const uint first = blocks % 256 * 8, second = blocks / 256 * 8, word = block[first];
  block[first] = block[second];
  block[second] = word;
}
kernel void increment(global uint* words) { words[get_global_id(0)] += 1; }
kernel void wait_a_while(global uint* words, uint rounds) {
  uint x = get_global_id(0);
  for (uint i = 0; i < rounds; ++i) x = x * 1664525u + 1013904223u;
  words[get_global_id(0)] += x == 0 ? 2 : 1;
}
uint page_of(uint launch, uint i, uint pages) {
  uint x = launch * 2654435761u + i;
  x ^= x >> 16; x *= 0x7FEB352Du; x ^= x >> 15; x *= 0x846CA68Bu; x ^= x >> 16;
  return x % pages;
}
kernel void touch(global uint* words, uint launch, uint pages, uint touched, uint rounds) {
  const uint i = get_global_id(0);
  uint x = 2 * i + 1;
  for (uint next = 0; next < rounds; ++next) x *= 1664525u;  // never even
  if (i < touched) atomic_add(words + (size_t)page_of(launch, i, pages) * 1024, x == 0 ? 2u : 1u);
}
)CLC";
constexpr const char* kScoped = R"CLC(
global uint counter = 0;
kernel void count(global uint* to) { to[0] = ++counter; }
)CLC";

[[noreturn]] void fail(const std::string& what) {
  std::printf("wrong: %s\n", what.c_str());
  std::exit(1);
}

void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS) fail(std::string{what} + ": OpenCL error " + std::to_string(code));
}

bool is_input_over() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

cl_uint filled(cl_uint i, cl_uint seed) { return (i ^ seed) * 2654435761U; }
cl_uint advanced(cl_uint word, cl_uint step) { return word * 1664525U + 1013904223U + step; }

struct Subject {
  Subject() {
    cl_platform_id platforms[16];
    cl_uint count = 0;
    check(clGetPlatformIDs(16, platforms, &count), "clGetPlatformIDs");
    cl_platform_id platform = platforms[0];
    const char* const wanted = std::getenv("SUBJECT_PLATFORM");  // part of its name
    for (cl_uint next = 0; wanted && next < count; ++next) {
      char name[256] = "";
      check(clGetPlatformInfo(platforms[next], CL_PLATFORM_NAME, sizeof name, name, nullptr), "clGetPlatformInfo");
      if (std::strstr(name, wanted)) platform = platforms[next];
    }
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), "clGetDeviceIDs");
    cl_int code = CL_SUCCESS;
    context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
    check(code, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "clCreateCommandQueue");
    program = build(kSource);
  }
  cl_program build(const char* source, const char* options = "") const {
    cl_int code = CL_SUCCESS;
    cl_program made = clCreateProgramWithSource(context, 1, &source, nullptr, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(made, 1, &device, options, nullptr, nullptr), "clBuildProgram");
    return made;
  }
  cl_kernel kernel(const char* name, cl_program from = nullptr) const {
    cl_int code = CL_SUCCESS;
    cl_kernel made = clCreateKernel(from ? from : program, name, &code);
    check(code, "clCreateKernel");
    return made;
  }
  cl_mem buffer(size_t words) const {
    cl_int code = CL_SUCCESS;
    cl_mem made = clCreateBuffer(context, CL_MEM_READ_WRITE, words * sizeof(cl_uint), nullptr, &code);
    check(code, "clCreateBuffer");
    return made;
  }
  void run(cl_kernel kernel, cl_mem memory, cl_uint value, size_t words, cl_event* event = nullptr) const {
    check(clSetKernelArg(kernel, 0, sizeof memory, &memory), "clSetKernelArg");
    check(clSetKernelArg(kernel, 1, sizeof value, &value), "clSetKernelArg");
    check(clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &words, nullptr, 0, nullptr, event),
          "clEnqueueNDRangeKernel");
  }
  void finish() const { check(clFinish(queue), "clFinish"); }
  Words read(cl_mem memory, size_t words) const {
    Words all(words);
    check(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, words * sizeof(cl_uint), all.data(), 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
    return all;
  }

  cl_device_id device = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  cl_program program = nullptr;
};

class Rounds {
 public:
  // True for as long as there is input to come.
  bool next() {
    const auto now = Clock::now();
    if (count_ == 0) {
      std::printf("ready\n");
      std::fflush(stdout);
    } else {
      longest_ = std::max(longest_, now - last_);
    }
    last_ = Clock::now();
    return !is_input_over();
  }
  cl_uint number() const { return count_; }
  cl_uint begin() { return count_++; }
  void tell() const {
    std::printf("{\"rounds\": %u, \"longest_ms\": %.3f} right\n", count_,
                std::chrono::duration<double, std::milli>{longest_}.count());
  }

 private:
  cl_uint count_ = 0;
  Clock::time_point last_;
  Clock::duration longest_{};
};

void expect_advanced(const Subject& subject, cl_mem memory, size_t words, size_t part, cl_uint seed, cl_uint rounds) {
  const Words all = subject.read(memory, words);
  for (size_t i = 0; i < words; ++i) {
    cl_uint expected = filled(static_cast<cl_uint>(i), seed);
    // All of the part is checked at a few places only: this is as slow as the rounds were many.
    if (i < part && i % 4099 != 0) continue;
    if (i < part) {
      for (cl_uint step = 0; step < rounds; ++step) expected = advanced(expected, step);
    }
    if (all[i] != expected)
      fail("word " + std::to_string(i) + " of buffer " + std::to_string(seed) + " is " + std::to_string(all[i]) +
           ", not " + std::to_string(expected));
  }
}

void busy(const std::vector<size_t>& sizes, const char* kernel_name = "advance") {
  const size_t buffers = !sizes.empty() ? sizes[0] : 4;
  const size_t words = (sizes.size() > 1 ? sizes[1] : 4) << 18;
  const size_t part = std::min(words, (sizes.size() > 2 ? sizes[2] : 1) << 18);
  Subject subject;
  cl_kernel fill = subject.kernel("fill");
  cl_kernel advance = subject.kernel(kernel_name);
  std::vector<cl_mem> all;
  for (size_t next = 0; next < buffers; ++next) {
    all.push_back(subject.buffer(words));
    subject.run(fill, all.back(), static_cast<cl_uint>(next), words);
  }
  subject.finish();
  Rounds rounds;
  while (rounds.next()) {
    subject.run(advance, all[0], rounds.begin(), part);
    subject.finish();
  }
  for (size_t next = 0; next < buffers; ++next)
    expect_advanced(subject, all[next], words, next == 0 ? part : 0, static_cast<cl_uint>(next), rounds.number());
  rounds.tell();
}

cl_uint page_of(cl_uint launch, cl_uint i, cl_uint pages) {
  cl_uint x = launch * 2654435761U + i;
  x ^= x >> 16;
  x *= 0x7FEB352DU;
  x ^= x >> 15;
  x *= 0x846CA68BU;
  x ^= x >> 16;
  return x % pages;
}

// Counts what happens in every tenth of a second.
class Tenths {
 public:
  void count() {
    const auto now = static_cast<size_t>((Clock::now() - start_) / std::chrono::milliseconds{100});
    if (counts_.size() <= now) counts_.resize(now + 1);
    ++counts_[now];
  }
  void tell() const {
    std::printf("{\"start\": %.6f, \"tenths\": [", std::chrono::duration<double>{start_.time_since_epoch()}.count());
    for (size_t next = 0; next < counts_.size(); ++next) std::printf("%s%u", next == 0 ? "" : ", ", counts_[next]);
    std::printf("]} right\n");
  }

 private:
  const Clock::time_point start_ = Clock::now();
  std::vector<unsigned> counts_;
};

class Scattered {
 public:
  Scattered(size_t buffers, size_t mib, cl_uint touched)
      : words_{mib << 18}, pages_{static_cast<cl_uint>(words_ / 1024)}, touched_{touched} {
    cl_kernel fill = subject_.kernel("fill");
    for (size_t next = 0; next < buffers; ++next) {
      all_.push_back(subject_.buffer(words_));
      subject_.run(fill, all_.back(), static_cast<cl_uint>(next), words_);
    }
    subject_.finish();
  }
  // Until one takes as long as it is to.
  void calibrate(std::chrono::milliseconds time) {
    launch(nullptr);  // the first takes longer
    subject_.finish();
    for (rounds_ = 64;; rounds_ *= 2) {
      const auto start = Clock::now();
      launch(nullptr);
      subject_.finish();
      const auto took = Clock::now() - start;
      if (took < time / 4) continue;
      rounds_ = static_cast<cl_uint>(static_cast<double>(rounds_) * (time / std::chrono::duration<double>{took}));
      return;
    }
  }
  void run() {
    std::printf("ready\n");
    std::fflush(stdout);
    std::vector<cl_event> events(4);
    Tenths tenths;
    for (size_t turn = 0; !is_input_over(); ++turn) {
      cl_event& event = events[turn % events.size()];
      if (event) {
        check(clWaitForEvents(1, &event), "clWaitForEvents");
        check(clReleaseEvent(event), "clReleaseEvent");
        tenths.count();
      }
      launch(&event);
      check(clFlush(subject_.queue), "clFlush");
    }
    check_all();
    tenths.tell();
  }

 private:
  void launch(cl_event* event) {
    const cl_uint number = launches_++;
    const size_t items = std::max<size_t>(touched_, 1 << 18);
    check(clSetKernelArg(kernel_, 2, sizeof pages_, &pages_), "clSetKernelArg");
    check(clSetKernelArg(kernel_, 3, sizeof touched_, &touched_), "clSetKernelArg");
    check(clSetKernelArg(kernel_, 4, sizeof rounds_, &rounds_), "clSetKernelArg");
    subject_.run(kernel_, all_[number % all_.size()], number, items, event);
  }
  void check_all() {
    for (size_t next = 0; next < all_.size(); ++next) {
      const auto seed = static_cast<cl_uint>(next);
      std::vector<cl_uint> added(pages_);
      for (cl_uint launch = seed; launch < launches_; launch += static_cast<cl_uint>(all_.size())) {
        for (cl_uint i = 0; i < touched_; ++i) ++added[page_of(launch, i, pages_)];
      }
      const Words now = subject_.read(all_[next], words_);
      for (size_t i = 0; i < words_; i += 256) {
        const cl_uint expected = filled(static_cast<cl_uint>(i), seed) + (i % 1024 == 0 ? added[i / 1024] : 0);
        if (now[i] != expected) fail("word " + std::to_string(i) + " of buffer " + std::to_string(next));
      }
    }
  }

  Subject subject_;
  const size_t words_;
  const cl_uint pages_;
  const cl_uint touched_;
  cl_kernel kernel_ = subject_.kernel("touch");
  std::vector<cl_mem> all_;
  cl_uint rounds_ = 1;
  cl_uint launches_ = 0;
};

void scattered(const std::vector<size_t>& sizes) {
  const auto size = [&](size_t place, size_t otherwise) { return sizes.size() > place ? sizes[place] : otherwise; };
  Scattered program{size(0, 8), size(1, 4), static_cast<cl_uint>(size(2, 100))};
  program.calibrate(std::chrono::milliseconds{size(3, 5)});
  program.run();
}

void scope() {
  Subject subject;
  cl_program scoped = subject.build(kScoped, "-cl-std=CL2.0");
  cl_kernel count = subject.kernel("count", scoped);
  cl_mem to = subject.buffer(1);
  check(clSetKernelArg(count, 0, sizeof to, &to), "clSetKernelArg");
  const size_t one = 1;
  Rounds rounds;
  while (rounds.next()) {
    rounds.begin();
    check(clEnqueueNDRangeKernel(subject.queue, count, 1, nullptr, &one, nullptr, 0, nullptr, nullptr), "launch");
    const Words all = subject.read(to, 1);
    if (all[0] != rounds.number()) fail("the variable forgot");
  }
  rounds.tell();
}

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

void callback() {
  constexpr size_t kWords = 1 << 12;
  Subject subject;
  cl_kernel fill = subject.kernel("fill");
  cl_kernel advance = subject.kernel("advance");
  cl_mem memory = subject.buffer(kWords);
  subject.run(fill, memory, 0, kWords);
  static std::atomic<cl_uint> called{0};
  static Subject* s_subject = &subject;
  Rounds rounds;
  cl_uint asked = 0;
  while (rounds.next()) {
    cl_event event = nullptr;
    subject.run(advance, memory, rounds.begin(), kWords, &event);
    if (rounds.number() % 64 == 1 && asked < called + 100) {
      ++asked;
      const auto call = [](cl_event, cl_int, void*) {
        std::this_thread::sleep_for(std::chrono::milliseconds{30});
        check(clFlush(s_subject->queue), "clFlush");
        ++called;
      };
      check(clSetEventCallback(event, CL_COMPLETE, call, nullptr), "clSetEventCallback");
    }
    subject.finish();
    cl_int status = CL_QUEUED;
    check(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr), "clGetEventInfo");
    if (status != CL_COMPLETE) fail("an event isn't complete after clFinish");
    check(clReleaseEvent(event), "clReleaseEvent");
  }
  const auto until = Clock::now() + std::chrono::seconds{30};
  while (called != asked && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds{5});
  if (called != asked) fail(std::to_string(called) + " callbacks of " + std::to_string(asked));
  expect_advanced(subject, memory, kWords, kWords, 0, rounds.number());
  rounds.tell();
}

void create() {
  constexpr size_t kWords = 1 << 14;
  Subject subject;
  Rounds rounds;
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    cl_program program = subject.build(kSource);
    cl_kernel fill = subject.kernel("fill", program);
    cl_kernel advance = subject.kernel("advance", program);
    cl_mem memory = subject.buffer(kWords);
    const cl_buffer_region region{0, kWords / 2 * sizeof(cl_uint)};
    cl_int code = CL_SUCCESS;
    subject.run(fill, memory, round, kWords);
    cl_mem half = clCreateSubBuffer(memory, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    check(code, "clCreateSubBuffer");
    subject.run(advance, half, 7, kWords / 2);
    check(clReleaseKernel(fill), "clReleaseKernel");
    check(clReleaseKernel(advance), "clReleaseKernel");
    check(clBuildProgram(program, 0, nullptr, "-DAGAIN", nullptr, nullptr), "clBuildProgram");
    const Words all = subject.read(memory, kWords);
    for (size_t i = 0; i < kWords; ++i) {
      const cl_uint word = filled(static_cast<cl_uint>(i), round);
      if (all[i] != (i < kWords / 2 ? advanced(word, 7) : word)) fail("an object that was just made");
    }
    check(clReleaseMemObject(half), "clReleaseMemObject");
    check(clReleaseMemObject(memory), "clReleaseMemObject");
    check(clReleaseProgram(program), "clReleaseProgram");
  }
  rounds.tell();
}

void image() {
  constexpr size_t kWidth = 1024;
  constexpr size_t kHeight = 64;
  Subject subject;
  const cl_image_format format{CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc desc{};
  desc.image_type = CL_MEM_OBJECT_IMAGE2D;
  desc.image_width = kWidth;
  desc.image_height = kHeight;
  Words expected(kWidth * kHeight, 7);
  cl_int code = CL_SUCCESS;
  cl_mem picture =
      clCreateImage(subject.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format, &desc, expected.data(), &code);
  check(code, "clCreateImage");
  const auto map = [&](cl_map_flags flags, size_t x, size_t width, size_t& pitch) {
    const size_t origin[3] = {x, 0, 0};
    const size_t region[3] = {width, kHeight, 1};
    auto* pixels = static_cast<std::byte*>(clEnqueueMapImage(subject.queue, picture, CL_TRUE, flags, origin, region,
                                                             &pitch, nullptr, 0, nullptr, nullptr, &code));
    check(code, "clEnqueueMapImage");
    return pixels;
  };
  Rounds rounds;
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    size_t pitch = 0;
    std::byte* pixels = map(CL_MAP_WRITE_INVALIDATE_REGION, kWidth / 2, kWidth / 2, pitch);
    for (size_t y = 0; y < kHeight; ++y) {
      for (size_t x = kWidth / 2; x < kWidth; ++x) expected[y * kWidth + x] = static_cast<cl_uint>(x * y + round);
      std::memcpy(pixels + y * pitch, &expected[y * kWidth + kWidth / 2], kWidth / 2 * sizeof(cl_uint));
      if (y % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    check(clEnqueueUnmapMemObject(subject.queue, picture, pixels, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
    pixels = map(CL_MAP_READ, 0, kWidth, pitch);
    for (size_t y = 0; y < kHeight; ++y) {
      if (std::memcmp(pixels + y * pitch, &expected[y * kWidth], kWidth * sizeof(cl_uint)) != 0)
        fail("a row of the image");
    }
    check(clEnqueueUnmapMemObject(subject.queue, picture, pixels, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
  }
  rounds.tell();
}

void clock_goes_on() {
  constexpr size_t kWords = 1 << 10;
  Subject subject;
  cl_kernel advance = subject.kernel("advance");
  cl_mem memory = subject.buffer(kWords);
  subject.run(subject.kernel("fill"), memory, 0, kWords);
  subject.finish();
  cl_int code = CL_SUCCESS;
  subject.queue = clCreateCommandQueue(subject.context, subject.device, CL_QUEUE_PROFILING_ENABLE, &code);
  check(code, "clCreateCommandQueue");
  cl_ulong last = 0;
  Rounds rounds;
  while (rounds.next()) {
    cl_event event = nullptr;
    subject.run(advance, memory, rounds.begin(), kWords, &event);
    subject.finish();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});  // in which it may be moved
    cl_ulong start = 0;
    cl_ulong end = 0;
    check(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr), "profile");
    check(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr), "profile");
    if (start < last || end < start) fail("time went back");
    if (last != 0 && end - last > 60'000'000'000) fail("a minute is missing");
    last = end;
    check(clReleaseEvent(event), "clReleaseEvent");
  }
  rounds.tell();
}

long times_interrupted() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nivcsw;
}

void enqueue(const std::vector<size_t>& sizes) {
  constexpr size_t kPart = 64;
  const size_t words = std::max(kPart, sizes.empty() ? kPart : sizes[0]);
  Subject subject;
  cl_kernel advance = subject.kernel("advance");
  cl_mem memory = subject.buffer(words);
  subject.run(subject.kernel("fill"), memory, 0, words);
  subject.finish();
  Rounds rounds;
  struct Call {
    double start;
    double milliseconds;
    long interrupted;
  };
  std::vector<Call> calls;
  calls.reserve(1 << 20);
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    const long before = times_interrupted();
    const auto start = Clock::now();
    subject.run(advance, memory, round, kPart);
    const auto took = Clock::now() - start;
    calls.push_back({std::chrono::duration<double>{start.time_since_epoch()}.count(),
                     std::chrono::duration<double, std::milli>{took}.count(), times_interrupted() - before});
    std::this_thread::sleep_for(std::chrono::microseconds{200});
  }
  subject.finish();
  expect_advanced(subject, memory, words, kPart, 0, rounds.number());
  std::printf("{\"rounds\": %u, \"calls\": [", rounds.number());
  std::erase_if(calls, [](const Call& call) { return call.milliseconds < 0.1; });
  for (const Call& call : calls)
    std::printf("%s[%.6f, %.3f, %ld]", &call == calls.data() ? "" : ", ", call.start, call.milliseconds,
                call.interrupted);
  std::printf("]} right\n");
}

void backlog(const std::vector<size_t>& sizes) {
  constexpr size_t kWords = 64;
  const size_t count = !sizes.empty() ? sizes[0] : 100;
  const double wanted = static_cast<double>(sizes.size() > 1 ? sizes[1] : 10);
  Subject subject;
  cl_kernel kernel = subject.kernel("wait_a_while");
  cl_mem memory = subject.buffer(kWords);
  const cl_uint zero = 0;
  check(clEnqueueFillBuffer(subject.queue, memory, &zero, sizeof zero, 0, kWords * sizeof zero, 0, nullptr, nullptr),
        "clEnqueueFillBuffer");
  subject.finish();
  cl_uint steps = 100000;
  double took = 0;
  cl_uint launched = 0;
  for (int attempt = 0; attempt < 10; ++attempt, ++launched) {
    const auto start = Clock::now();
    subject.run(kernel, memory, steps, kWords);
    subject.finish();
    took = std::chrono::duration<double, std::milli>{Clock::now() - start}.count();
    if (attempt < 9) steps = static_cast<cl_uint>(steps * wanted / took);
  }
  const auto add = [&] {
    for (size_t next = 0; next < count; ++next, ++launched) subject.run(kernel, memory, steps, kWords);
    check(clFlush(subject.queue), "clFlush");
  };
  add();
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    add();
    std::printf("%.3f\n", took);
    std::fflush(stdout);
  }
  for (const cl_uint word : subject.read(memory, kWords)) {
    if (word != launched) fail(std::to_string(word) + " kernels of " + std::to_string(launched));
  }
  std::printf("{\"kernels\": %u, \"kernel_ms\": %.3f} right\n", launched, took);
}

void count() {
  constexpr size_t kWords = 1 << 12;
  Subject subject;
  cl_kernel increment = subject.kernel("increment");
  cl_mem memory = subject.buffer(kWords);
  const cl_uint zero = 0;
  check(clEnqueueFillBuffer(subject.queue, memory, &zero, sizeof zero, 0, kWords * sizeof zero, 0, nullptr, nullptr),
        "clEnqueueFillBuffer");
  subject.finish();
  std::printf("ready\n");
  std::fflush(stdout);
  std::vector<cl_event> events;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "look") {
      std::printf("%u\n", subject.read(memory, kWords).back());
    } else if (line == "add") {
      check(clSetKernelArg(increment, 0, sizeof memory, &memory), "clSetKernelArg");
      check(clEnqueueNDRangeKernel(subject.queue, increment, 1, nullptr, &kWords, nullptr, 0, nullptr,
                                   &events.emplace_back()),
            "clEnqueueNDRangeKernel");
      check(clFlush(subject.queue), "clFlush");
      std::printf("done\n");
    } else {
      char name[256] = "";
      cl_uint units = 0;
      cl_int status = 0;
      size_t size = 0;
      check(clGetDeviceInfo(subject.device, CL_DEVICE_NAME, sizeof name, name, nullptr), "clGetDeviceInfo");
      check(clGetDeviceInfo(subject.device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, nullptr),
            "clGetDeviceInfo");
      check(clGetKernelInfo(increment, CL_KERNEL_FUNCTION_NAME, sizeof name, name, nullptr), "clGetKernelInfo");
      check(clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof size, &size, nullptr), "clGetMemObjectInfo");
      for (cl_event event : events) {
        check(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr), "event");
        check(clReleaseEvent(event), "clReleaseEvent");
      }
      events.clear();
      check(clReleaseMemObject(subject.buffer(kWords)), "clReleaseMemObject");
      std::printf("done\n");
    }
    std::fflush(stdout);
  }
}

// Any number of times there and back: as often as not, a copy is made in between.
void flip() {
  constexpr size_t kWords = 1 << 19;
  Subject subject;
  cl_kernel fill = subject.kernel("fill");
  cl_kernel flip = subject.kernel("flip");
  cl_mem memory = subject.buffer(kWords);
  subject.run(fill, memory, 0, kWords);
  subject.finish();
  Rounds rounds;
  while (rounds.next()) {
    rounds.begin();
    for (int turn = 0; turn < 8; ++turn) {
      subject.run(flip, memory, 0x00010001, kWords / 4);
      check(clFlush(subject.queue), "clFlush");
      subject.run(flip, memory, 0x00010001, kWords / 4);
    }
    subject.finish();
  }
  expect_advanced(subject, memory, kWords, 0, 0, 0);
  rounds.tell();
}

void swap() {
  constexpr size_t kWords = 1 << 21;
  constexpr size_t kPage = 1024;
  constexpr size_t kBlock = 8;
  Subject subject;
  cl_kernel fill = subject.kernel("fill");
  cl_kernel swap = subject.kernel("swap");
  cl_mem memory = subject.buffer(kWords);
  subject.run(fill, memory, 0, kWords);
  subject.finish();
  std::vector<cl_uint> blocks(kPage / kBlock);  // which one is there
  std::iota(blocks.begin(), blocks.end(), 0);
  std::minstd_rand random{1};
  Rounds rounds;
  while (rounds.next()) {
    rounds.begin();
    const cl_uint first = random() % blocks.size();
    const cl_uint second = (first + 1 + random() % (blocks.size() - 1)) % blocks.size();
    std::swap(blocks[first], blocks[second]);
    subject.run(swap, memory, first + 256 * second, kWords / kPage * kBlock);
    subject.finish();
  }
  const Words all = subject.read(memory, kWords);
  for (size_t i = 0; i < kWords; ++i) {
    const size_t from = i / kPage * kPage + blocks[i % kPage / kBlock] * kBlock + i % kBlock;
    if (all[i] != filled(static_cast<cl_uint>(from), 0)) fail("a block isn't where it was put");
  }
  rounds.tell();
}

void state() {
  constexpr size_t kWords = 1 << 16;
  Subject subject;
  cl_kernel wait = subject.kernel("wait_a_while");
  cl_mem memory = subject.buffer(kWords);
  const cl_uint zero = 0;
  check(clEnqueueFillBuffer(subject.queue, memory, &zero, sizeof zero, 0, kWords * sizeof zero, 0, nullptr, nullptr),
        "clEnqueueFillBuffer");
  subject.finish();
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "add") subject.run(wait, memory, 1, kWords);
    const Words all = subject.read(memory, kWords);
    if (!std::all_of(all.begin(), all.end(), [&](cl_uint word) { return word == all[0]; })) fail("words differ");
    std::printf("%u\n", all[0]);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  std::vector<size_t> sizes;
  for (int next = 2; next < argc; ++next) sizes.push_back(std::strtoul(argv[next], nullptr, 10));
  using Sizes = const std::vector<size_t>&;
  const std::map<std::string, std::function<void(Sizes)>> programs{
      {"busy", [](Sizes given) { busy(given); }},
      {"scattered", scattered},
      {"const",
       [](Sizes) {
         busy({2, 1, 1}, "sneak");
       }},
      {"scope", [](Sizes) { scope(); }},
      {"mapped", [](Sizes) { mapped(); }},
      {"callback", [](Sizes) { callback(); }},
      {"create", [](Sizes) { create(); }},
      {"image", [](Sizes) { image(); }},
      {"clock", [](Sizes) { clock_goes_on(); }},
      {"enqueue", enqueue},
      {"backlog", backlog},
      {"count", [](Sizes) { count(); }},
      {"flip", [](Sizes) { flip(); }},
      {"swap", [](Sizes) { swap(); }},
      {"state", [](Sizes) { state(); }},
  };
  const auto program = programs.find(what);
  if (program != programs.end()) {
    program->second(sizes);
    return 0;
  }
  std::fprintf(stderr, "usage: move_subject PROGRAM [NUMBER...]; programs:");
  for (const auto& [name, run] : programs) std::fprintf(stderr, " %s", name.c_str());
  std::fprintf(stderr, "\n");
  return 2;
}
