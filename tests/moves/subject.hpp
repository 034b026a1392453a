// What the programs to be moved share: the device and what they use of it, checks, and what they tell.
#pragma once

#include <CL/cl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace subject {

using Clock = std::chrono::steady_clock;
using Words = std::vector<cl_uint>;

inline constexpr const char* kSource = R"CLC(
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

[[noreturn]] inline void fail(const std::string& what) {
  std::printf("wrong: %s\n", what.c_str());
  std::exit(1);
}

inline void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS) fail(std::string{what} + ": OpenCL error " + std::to_string(code));
}

inline void tell_ready() {
  std::printf("ready\n");
  std::fflush(stdout);
}

inline bool is_input_over() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

inline cl_uint filled(cl_uint i, cl_uint seed) { return (i ^ seed) * 2654435761U; }
inline cl_uint advanced(cl_uint word, cl_uint step) { return word * 1664525U + 1013904223U + step; }

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
    if (std::getenv("SUBJECT_SUB_DEVICE")) {
      const cl_device_partition_property one_unit[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
      cl_device_id parts[64];
      check(clCreateSubDevices(device, one_unit, 64, parts, nullptr), "clCreateSubDevices");
      device = parts[0];
    }
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
  cl_mem zeroes(size_t words) const {
    cl_mem made = buffer(words);
    const cl_uint zero = 0;
    check(clEnqueueFillBuffer(queue, made, &zero, sizeof zero, 0, words * sizeof zero, 0, nullptr, nullptr),
          "clEnqueueFillBuffer");
    finish();
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
      tell_ready();
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

inline void expect_advanced(const Subject& subject, cl_mem memory, size_t words, size_t part, cl_uint seed,
                            cl_uint rounds) {
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

using Sizes = std::vector<size_t>;
void busy(const Sizes& sizes, const char* kernel_name = "advance");
void scattered(const Sizes& sizes);
void mapped();
void unmapped();
void lent();
void borrowed();
void image();
void images();
void flip();
void swap();
void ways(const Sizes& sizes);
void state();
void scope();
void callback();
void create();
void rebuild();
void many_programs(const Sizes& sizes);
void clock_goes_on();
void enqueue(const Sizes& sizes);
void backlog(const Sizes& sizes);
void native();
void formats();
void count();

}  // namespace subject
