// What most programs do: a context, a queue, a program, a kernel, ten buffers, a thousand launches with new arguments
// each, and one blocking read at the end. --print: the kernel prints. --for-ever: again and again, until a call fails.
// --both-ways: large reads and writes at the same time instead, more than any socket holds. --twice: again when a line
// has come on standard input.
// --large-behind-small: a write of more than a server keeps while another waits for its device.
// --for SECONDS: data goes there, is worked on and comes back, all of it checked, for so long after every size was done
// once, which it says; prints a checksum, which only depends on how often that was done.
// --until-told: the same until its input ends.
// --allocate BYTES: a buffer of that size, filled and read back.
// --map BYTES: so much in buffers of 8 MiB that are all mapped at once, filled, worked on, mapped again and checked.
// --keep-mapped: a buffer that is mapped and written to before and after a line has come on standard input.
// --wait SECONDS: for a kernel that takes at least so long; prints which part of that time it used a core.
// --come-and-go: many buffers, each released before anything uses it, and one that stays until the input ends; the last
// of many is used, and must be as good as any.
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "device.hpp"

namespace {

constexpr const char* kSource = R"CLC(
kernel void add(global int* to, global const int* from, int value, int prints) {
  const int item = get_global_id(0);
  to[item] = from[item] + value;
  if (prints) printf("item %d says hello\n", item);
}
kernel void turn(global uint* word, ulong rounds) {
  uint value = *word;
  for (ulong round = 0; round < rounds; ++round) value = value * 1664525u + 1013904223u;
  *word = value;
}
)CLC";
constexpr int kBuffers = 10;
constexpr int kLaunches = 1000;
constexpr size_t kItems = 16;

cl_program build(cl_context context) {
  cl_int code = CL_SUCCESS;
  const char* source = kSource;
  cl_program program = clCreateProgramWithSource(context, 1, &source, nullptr, &code);
  check(code, "program");
  check(clBuildProgram(program, 0, nullptr, nullptr, nullptr, nullptr), "build");
  return program;
}

void run(bool prints) {
  const auto [context, queue] = open_device();
  cl_int code = CL_SUCCESS;
  cl_program program = build(context);
  cl_kernel kernel = clCreateKernel(program, "add", &code);
  check(code, "kernel");
  cl_mem buffers[kBuffers];
  const cl_int zero[kItems] = {};
  for (cl_mem& buffer : buffers) {
    buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof zero, const_cast<cl_int*>(zero), &code);
    check(code, "buffer");
  }
  const int launches = prints ? 1 : kLaunches;
  for (int number = 0; number < launches; ++number) {
    const cl_int value = number;
    const cl_int flag = prints ? 1 : 0;
    check(clSetKernelArg(kernel, 0, sizeof(cl_mem), &buffers[(number + 1) % kBuffers]), "argument");
    check(clSetKernelArg(kernel, 1, sizeof(cl_mem), &buffers[number % kBuffers]), "argument");
    check(clSetKernelArg(kernel, 2, sizeof value, &value), "argument");
    check(clSetKernelArg(kernel, 3, sizeof flag, &flag), "argument");
    check(clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &kItems, nullptr, 0, nullptr, nullptr), "launch");
  }
  cl_int result[kItems] = {};
  check(
      clEnqueueReadBuffer(queue, buffers[launches % kBuffers], CL_TRUE, 0, sizeof result, result, 0, nullptr, nullptr),
      "read");
  for (const cl_int item : result) {
    if (item == launches * (launches - 1) / 2) continue;
    std::fprintf(stderr, "wrong result: %d\n", item);
    std::exit(1);
  }
  for (cl_mem buffer : buffers) clReleaseMemObject(buffer);
  clReleaseKernel(kernel);
  clReleaseProgram(program);
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
}

void run_both_ways() {
  constexpr size_t kSize = size_t{64} << 20;
  const auto [context, queue] = open_device();
  cl_int code = CL_SUCCESS;
  std::vector<char> sent(kSize, 1);
  std::vector<std::vector<char>> received(4, std::vector<char>(kSize));
  cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, kSize, sent.data(), &code);
  check(code, "buffer");
  for (size_t number = 0; number < received.size(); ++number) {
    check(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, kSize, received[number].data(), 0, nullptr, nullptr), "read");
    std::memset(sent.data(), static_cast<int>(number) + 2, kSize);
    check(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, kSize, sent.data(), 0, nullptr, nullptr), "write");
  }
  check(clFinish(queue), "finish");
  for (size_t number = 0; number < received.size(); ++number) {
    for (const char byte : received[number]) {
      if (byte == static_cast<char>(number + 1)) continue;
      std::fprintf(stderr, "wrong data\n");
      std::exit(1);
    }
  }
}

using Clock = std::chrono::steady_clock;

void run_large_behind_small() {
  constexpr size_t kSize = size_t{300} << 20;
  const auto [context, queue] = open_device();
  cl_int code = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, kSize, nullptr, &code);
  check(code, "buffer");
  const std::vector<char> sent(kSize, 1);
  check(clEnqueueFillBuffer(queue, buffer, sent.data(), 1, 0, 4096, 0, nullptr, nullptr), "fill");
  for (const size_t size : {size_t{1}, kSize})
    check(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, size, sent.data(), 0, nullptr, nullptr), "write");
  check(clFinish(queue), "finish");
}

bool has_input_ended() {
  pollfd input{STDIN_FILENO, 0, 0};
  return poll(&input, 1, 0) > 0;
}

// Calls is_over(since) after every round.
template <typename IsOver>
void run_until(IsOver is_over) {
  const auto [context, queue] = open_device();
  cl_int code = CL_SUCCESS;
  cl_program program = build(context);
  cl_kernel kernel = clCreateKernel(program, "add", &code);
  check(code, "kernel");
  constexpr int kSizes = 13;
  constexpr size_t kMost = kItems << (kSizes - 1);
  std::vector<cl_int> numbers(kMost);
  cl_mem from = clCreateBuffer(context, 0, kMost * sizeof(cl_int), nullptr, &code);
  check(code, "buffer");
  cl_mem to = clCreateBuffer(context, 0, kMost * sizeof(cl_int), nullptr, &code);
  check(code, "buffer");
  auto ready = Clock::time_point{};
  cl_int rounds = 0;
  std::uint64_t sum = 0;
  for (; rounds <= kSizes || !is_over(Clock::now() - ready); ++rounds) {
    if (rounds == kSizes) {
      ready = Clock::now();
      std::printf("ready\n");
      std::fflush(stdout);
    }
    const size_t items = kItems << rounds % kSizes;
    const size_t size = items * sizeof(cl_int);
    for (size_t item = 0; item < items; ++item) numbers[item] = rounds ^ static_cast<cl_int>(item);
    check(clEnqueueWriteBuffer(queue, from, rounds % 2, 0, size, numbers.data(), 0, nullptr, nullptr), "write");
    const cl_int flag = 0;
    check(clSetKernelArg(kernel, 0, sizeof to, &to), "argument");
    check(clSetKernelArg(kernel, 1, sizeof from, &from), "argument");
    check(clSetKernelArg(kernel, 2, sizeof rounds, &rounds), "argument");
    check(clSetKernelArg(kernel, 3, sizeof flag, &flag), "argument");
    check(clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &items, nullptr, 0, nullptr, nullptr), "launch");
    check(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, size, numbers.data(), 0, nullptr, nullptr), "read");
    for (size_t item = 0; item < items; ++item) {
      if (numbers[item] != (rounds ^ static_cast<cl_int>(item)) + rounds) {
        std::fprintf(stderr, "wrong result in round %d: %d\n", rounds, numbers[item]);
        std::exit(3);
      }
      sum = sum * 31 + static_cast<std::uint32_t>(numbers[item]);
    }
  }
  std::printf("%d rounds, checksum %016llx\n", rounds, static_cast<unsigned long long>(sum));
}

void allocate(size_t size) {
  const auto [context, queue] = open_device();
  cl_int code = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(context, 0, size, nullptr, &code);
  check(code, "buffer");
  const cl_int pattern = 7;
  check(clEnqueueFillBuffer(queue, buffer, &pattern, sizeof pattern, 0, size, 0, nullptr, nullptr), "fill");
  check(clFinish(queue), "finish");
  cl_int last = 0;
  check(clEnqueueReadBuffer(queue, buffer, CL_TRUE, size - sizeof last, sizeof last, &last, 0, nullptr, nullptr),
        "read");
  if (last != pattern) std::exit(3);
}

void map_much(size_t all) {
  constexpr size_t kSize = size_t{8} << 20;
  constexpr size_t kNumbers = kSize / sizeof(cl_int);
  const auto [context, queue] = open_device();
  cl_int code = CL_SUCCESS;
  cl_kernel kernel = clCreateKernel(build(context), "add", &code);
  check(code, "kernel");
  std::vector<cl_mem> buffers(all / kSize);
  std::vector<cl_int*> mapped(buffers.size());
  const auto map_all = [&, in = queue](cl_map_flags flags) {
    for (size_t index = 0; index < buffers.size(); ++index) {
      mapped[index] = static_cast<cl_int*>(
          clEnqueueMapBuffer(in, buffers[index], CL_TRUE, flags, 0, kSize, 0, nullptr, nullptr, &code));
      check(code, "map");
    }
  };
  const auto unmap_all = [&, in = queue] {
    for (size_t index = 0; index < buffers.size(); ++index)
      check(clEnqueueUnmapMemObject(in, buffers[index], mapped[index], 0, nullptr, nullptr), "unmap");
  };
  for (cl_mem& buffer : buffers) {
    buffer = clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR, kSize, nullptr, &code);
    check(code, "buffer");
  }
  map_all(CL_MAP_WRITE_INVALIDATE_REGION);
  for (size_t index = 0; index < buffers.size(); ++index) {
    for (size_t item = 0; item < kNumbers; ++item) mapped[index][item] = static_cast<cl_int>(index ^ item);
  }
  unmap_all();
  const cl_int value = 5;
  const cl_int flag = 0;
  for (cl_mem buffer : buffers) {
    check(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), "argument");
    check(clSetKernelArg(kernel, 1, sizeof buffer, &buffer), "argument");
    check(clSetKernelArg(kernel, 2, sizeof value, &value), "argument");
    check(clSetKernelArg(kernel, 3, sizeof flag, &flag), "argument");
    check(clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &kNumbers, nullptr, 0, nullptr, nullptr), "launch");
  }
  map_all(CL_MAP_READ);
  for (size_t index = 0; index < buffers.size(); ++index) {
    for (size_t item = 0; item < kNumbers; ++item) {
      if (mapped[index][item] != static_cast<cl_int>(index ^ item) + value) std::exit(3);
    }
  }
  unmap_all();
  check(clFinish(queue), "finish");
}

void keep_mapped() {
  constexpr size_t kSize = size_t{1} << 20;
  const auto [context, queue] = open_device();
  cl_int code = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR, kSize, nullptr, &code);
  check(code, "buffer");
  auto* const mapped = static_cast<char*>(
      clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, kSize, 0, nullptr, nullptr, &code));
  check(code, "map");
  std::memset(mapped, 1, kSize);
  std::puts("ready");
  std::fflush(stdout);
  std::getchar();
  for (size_t index = 0; index < kSize; ++index) {
    if (mapped[index]++ != 1) std::exit(3);
  }
  check(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, nullptr, nullptr), "unmap");
  std::vector<char> read(kSize);
  check(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, kSize, read.data(), 0, nullptr, nullptr), "read");
  if (read != std::vector<char>(kSize, 2)) std::exit(3);
}

void wait(std::chrono::duration<double> wanted) {
  const auto [context, queue] = open_device();
  cl_int code = CL_SUCCESS;
  cl_kernel kernel = clCreateKernel(build(context), "turn", &code);
  check(code, "kernel");
  cl_mem word = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof(cl_uint), nullptr, &code);
  check(code, "buffer");
  check(clSetKernelArg(kernel, 0, sizeof word, &word), "argument");
  for (cl_ulong rounds = cl_ulong{1} << 20;; rounds *= 2) {
    check(clSetKernelArg(kernel, 1, sizeof rounds, &rounds), "argument");
    const auto start = Clock::now();
    const std::clock_t used = std::clock();  // by all of its threads
    const size_t one = 1;
    check(clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &one, nullptr, 0, nullptr, nullptr), "launch");
    check(clFinish(queue), "finish");
    const std::chrono::duration<double> passed = Clock::now() - start;
    if (passed < wanted) continue;
    std::printf("%.4f\n", static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC / passed.count());
    return;
  }
}

void come_and_go() {
  const auto [context, queue] = open_device();
  cl_int code = CL_SUCCESS;
  const auto create = [&, in = context] {
    cl_mem buffer = clCreateBuffer(in, 0, sizeof code, nullptr, &code);
    check(code, "buffer");
    return buffer;
  };
  for (int number = 0; number < 10000; ++number) check(clReleaseMemObject(create()), "release");
  cl_mem used = create();
  for (int number = 0; number < 100; ++number) check(clReleaseMemObject(create()), "release");
  const cl_int written = 7;
  cl_int read = 0;
  check(clEnqueueFillBuffer(queue, used, &written, sizeof written, 0, sizeof written, 0, nullptr, nullptr), "fill");
  check(clEnqueueReadBuffer(queue, used, CL_TRUE, 0, sizeof read, &read, 0, nullptr, nullptr), "read");
  if (read != written) std::exit(3);
  check(clReleaseMemObject(used), "release");
  create();
  std::puts("ready");
  std::fflush(stdout);
  std::getchar();
}

}  // namespace

int main(int argc, char** argv) {
  const auto has = [&](const char* option) { return argc > 1 && std::strcmp(argv[1], option) == 0; };
  if (has("--both-ways")) {
    run_both_ways();
    return 0;
  }
  if (has("--large-behind-small")) {
    run_large_behind_small();
    return 0;
  }
  if (has("--for")) {
    const std::chrono::duration<double> wanted{std::stod(argv[2])};
    run_until([&](Clock::duration passed) { return passed >= wanted; });
    return 0;
  }
  if (has("--until-told")) {
    run_until([](Clock::duration) { return has_input_ended(); });
    return 0;
  }
  if (has("--allocate")) {
    allocate(std::stoull(argv[2]));
    return 0;
  }
  if (has("--map")) {
    map_much(std::stoull(argv[2]));
    return 0;
  }
  if (has("--keep-mapped")) {
    keep_mapped();
    return 0;
  }
  if (has("--wait")) {
    wait(std::chrono::duration<double>{std::stod(argv[2])});
    return 0;
  }
  if (has("--come-and-go")) {
    come_and_go();
    return 0;
  }
  if (has("--twice")) {
    run(false);
    std::puts("once");
    std::fflush(stdout);
    std::getchar();
  }
  do {
    run(has("--print"));
  } while (has("--for-ever"));
}
