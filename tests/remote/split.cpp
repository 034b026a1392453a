// Kernels that take long, of two dimensions, with offsets, work-groups and events. A server that shares its device may
// run them in pieces, which must not be seen: their results are compared, and so are their times.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "device.hpp"

namespace {

constexpr std::size_t kWidth = 96;
constexpr std::size_t kHeight = 160;
constexpr std::size_t kLeft = 16;
constexpr std::size_t kTop = 7;

constexpr const char* kSource = R"CLC(
kernel void grow(global uint* to, uint width, uint rounds) {
  const size_t at = get_global_id(1) * width + get_global_id(0);
  local uint first;
  if (get_local_id(0) == 0 && get_local_id(1) == 0) first = 1;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint own = to[at] + (uint)at * first;
  for (uint round = 0; round < rounds; ++round) own = own * 1664525u + 1013904223u;
  to[at] = own;
}
kernel void copy(global uint* to, global const uint* from) { to[get_global_id(0)] = from[get_global_id(0)] + 1; }
)CLC";

struct Program {
  Opened device{};
  cl_command_queue queue = nullptr;
  cl_kernel grow = nullptr;
  cl_kernel copy = nullptr;
  cl_mem values = nullptr;
  cl_mem copied = nullptr;
};

constexpr std::size_t kItems = (kWidth + kLeft) * (kHeight + kTop);

cl_mem new_buffer(cl_context context) {
  std::vector<cl_uint> zeroes(kItems);
  cl_int code = CL_SUCCESS;
  cl_mem buffer =
      clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, kItems * sizeof(cl_uint), zeroes.data(), &code);
  check(code, "buffer");
  return buffer;
}

Program start() {
  Program program;
  program.device = open_device();
  cl_device_id device = nullptr;
  clGetCommandQueueInfo(program.device.queue, CL_QUEUE_DEVICE, sizeof device, &device, nullptr);
  cl_int code = CL_SUCCESS;
  program.queue = clCreateCommandQueue(program.device.context, device, CL_QUEUE_PROFILING_ENABLE, &code);
  check(code, "queue");
  const char* source = kSource;
  cl_program built = clCreateProgramWithSource(program.device.context, 1, &source, nullptr, &code);
  check(clBuildProgram(built, 0, nullptr, "", nullptr, nullptr), "build");
  program.grow = clCreateKernel(built, "grow", &code);
  check(code, "kernel");
  program.copy = clCreateKernel(built, "copy", &code);
  check(code, "kernel");
  program.values = new_buffer(program.device.context);
  program.copied = new_buffer(program.device.context);
  return program;
}

// Of an event that is over long since, while another kernel runs.
void ask_meanwhile(cl_event past) {
  const auto start = std::chrono::steady_clock::now();
  cl_int status = CL_QUEUED;
  check(clGetEventInfo(past, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr), "status");
  check(clWaitForEvents(1, &past), "wait");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (status == CL_COMPLETE && took.count() < 1) return;
  std::fprintf(stderr, "status %d of what was over, after %.3f s\n", status, took.count());
  std::exit(1);
}

// A kernel that takes three seconds, and is not waited for at first.
void run_long(const Program& program, cl_uint rounds) {
  cl_event past = nullptr;
  check(clEnqueueMarkerWithWaitList(program.queue, 0, nullptr, &past), "marker");
  check(clFinish(program.queue), "finish");
  check(clSetKernelArg(program.grow, 2, sizeof rounds, &rounds), "argument");
  const std::size_t global[] = {kWidth, kHeight};
  const std::size_t local[] = {8, 4};
  cl_event grown = nullptr;
  check(clEnqueueNDRangeKernel(program.queue, program.grow, 2, nullptr, global, local, 0, nullptr, &grown), "launch");
  check(clFlush(program.queue), "flush");
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  ask_meanwhile(past);
  check(clWaitForEvents(1, &grown), "wait");
  clReleaseEvent(grown);
  clReleaseEvent(past);
}

// The time of one kernel, by its event, in ns.
std::uint64_t run(const Program& program, std::vector<std::uint32_t>& expected, cl_uint rounds) {
  const auto width = static_cast<cl_uint>(kWidth + kLeft);
  check(clSetKernelArg(program.grow, 0, sizeof program.values, &program.values), "argument");
  check(clSetKernelArg(program.grow, 1, sizeof width, &width), "argument");
  check(clSetKernelArg(program.grow, 2, sizeof rounds, &rounds), "argument");
  const std::size_t offset[] = {kLeft, kTop};
  const std::size_t global[] = {kWidth, kHeight};
  const std::size_t local[] = {8, 4};
  cl_event grown = nullptr;
  check(clEnqueueNDRangeKernel(program.queue, program.grow, 2, offset, global, local, 0, nullptr, &grown), "launch");
  check(clSetKernelArg(program.copy, 0, sizeof program.copied, &program.copied), "argument");
  check(clSetKernelArg(program.copy, 1, sizeof program.values, &program.values), "argument");
  // On another queue, which has only the event to go by.
  check(clEnqueueNDRangeKernel(program.device.queue, program.copy, 1, nullptr, &kItems, nullptr, 1, &grown, nullptr),
        "launch");
  std::vector<std::uint32_t> found(kItems);
  check(clEnqueueReadBuffer(program.device.queue, program.copied, CL_TRUE, 0, kItems * sizeof(cl_uint), found.data(), 0,
                            nullptr, nullptr),
        "read");
  for (std::size_t y = kTop; y < kTop + kHeight; ++y) {
    for (std::size_t x = kLeft; x < kLeft + kWidth; ++x) {
      std::uint32_t& own = expected[y * width + x];
      own += static_cast<std::uint32_t>(y * width + x);
      for (cl_uint round = 0; round < rounds; ++round) own = own * 1664525U + 1013904223U;
    }
  }
  for (std::size_t item = 0; item < kItems; ++item) {
    if (found[item] == expected[item] + 1) continue;
    std::fprintf(stderr, "%u instead of %u at %zu\n", found[item], expected[item] + 1, item);
    std::exit(1);
  }
  cl_ulong begun = 0;
  cl_ulong ended = 0;
  check(clGetEventProfilingInfo(grown, CL_PROFILING_COMMAND_START, sizeof begun, &begun, nullptr), "profile");
  check(clGetEventProfilingInfo(grown, CL_PROFILING_COMMAND_END, sizeof ended, &ended, nullptr), "profile");
  clReleaseEvent(grown);
  return ended - begun;
}

}  // namespace

int main(int, char**) {
  const Program program = start();
  std::vector<std::uint32_t> expected(kItems);
  // So many rounds that it takes long enough, whatever the device.
  cl_uint rounds = 1000;
  std::uint64_t whole = run(program, expected, rounds);
  for (; whole < 60'000'000; whole = run(program, expected, rounds)) rounds *= 2;
  for (int turn = 0; turn < 6; ++turn) {
    const std::uint64_t time = run(program, expected, rounds);
    // All of it counts, not only the last piece.
    if (time >= whole / 4) continue;
    std::fprintf(stderr, "it took %llu ns instead of %llu\n", static_cast<unsigned long long>(time),
                 static_cast<unsigned long long>(whole));
    return 1;
  }
  run_long(program, static_cast<cl_uint>(3e9 / static_cast<double>(whole) * rounds));
  return 0;
}
