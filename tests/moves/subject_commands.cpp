// Programs whose objects, commands and callbacks go along with them.
#include <sys/resource.h>

#include <atomic>
#include <ctime>
#include <iostream>
#include <thread>

#include "subject.hpp"

namespace subject {
namespace {

constexpr const char* kScoped = R"CLC(
global uint counter = 0;
kernel void count(global uint* to) { to[0] = ++counter; }
)CLC";

// What a thread did by itself: the core's time that it took, and how often it waited.
struct Used {
  double milliseconds;
  long waits;
};

Used used_so_far() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return {1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec), used.ru_nvcsw};
}

}  // namespace

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

void rebuild() {
  constexpr int kKernels = 150;
  std::string source;
  for (int next = 0; next < kKernels; ++next)
    source += "kernel void fill_" + std::to_string(next) +
              "(global uint* to, uint seed) { to[get_global_id(0)] = seed + " + std::to_string(next) + "; }\n";
  Subject subject;
  check(clReleaseProgram(subject.program), "clReleaseProgram");  // each move would build it
  cl_mem memory = subject.buffer(1);
  Rounds rounds;
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    cl_program program = subject.build(source.c_str());
    cl_kernel fill = subject.kernel("fill_7", program);
    subject.run(fill, memory, round, 1);
    if (subject.read(memory, 1)[0] != round + 7) fail("a program that was just built");
    check(clReleaseKernel(fill), "clReleaseKernel");
    check(clReleaseProgram(program), "clReleaseProgram");
  }
  rounds.tell();
}

void many_programs(const Sizes& sizes) {
  Subject subject;
  cl_mem memory = subject.buffer(1);
  std::vector<cl_kernel> kernels;
  for (size_t next = 0; next < (sizes.empty() ? 10 : sizes[0]); ++next)
    kernels.push_back(subject.kernel("fill", subject.build(kSource, ("-DNUMBER=" + std::to_string(next)).c_str())));
  Rounds rounds;
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    subject.run(kernels[round % kernels.size()], memory, round, 1);
    if (subject.read(memory, 1)[0] != filled(0, round)) fail("a kernel of one of many programs");
  }
  rounds.tell();
}

void enqueue(const Sizes& sizes) {
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
    double own;  // without what others took of the core meanwhile; all of it if the call waited
  };
  std::vector<Call> calls;
  calls.reserve(1 << 20);
  while (rounds.next()) {
    const cl_uint round = rounds.begin();
    const Used before = used_so_far();
    const auto start = Clock::now();
    subject.run(advance, memory, round, kPart);
    const double took = std::chrono::duration<double, std::milli>{Clock::now() - start}.count();
    const Used after = used_so_far();
    calls.push_back({std::chrono::duration<double>{start.time_since_epoch()}.count(), took,
                     after.waits != before.waits ? took : after.milliseconds - before.milliseconds});
    std::this_thread::sleep_for(std::chrono::microseconds{200});
  }
  subject.finish();
  expect_advanced(subject, memory, words, kPart, 0, rounds.number());
  std::printf("{\"rounds\": %u, \"calls\": [", rounds.number());
  std::erase_if(calls, [](const Call& call) { return call.milliseconds < 0.1; });
  for (const Call& call : calls)
    std::printf("%s[%.6f, %.3f, %.3f]", &call == calls.data() ? "" : ", ", call.start, call.milliseconds, call.own);
  std::printf("]} right\n");
}

void backlog(const Sizes& sizes) {
  constexpr size_t kWords = 64;
  const size_t count = !sizes.empty() ? sizes[0] : 100;
  const double wanted = static_cast<double>(sizes.size() > 1 ? sizes[1] : 10);
  Subject subject;
  cl_kernel kernel = subject.kernel("wait_a_while");
  cl_mem memory = subject.zeroes(kWords);
  cl_uint steps = 100000;
  double took = 0;
  cl_uint launched = 0;
  const double tried = std::min(wanted, 100.0);  // of long ones, to find out takes long
  for (int attempt = 0; attempt < 10; ++attempt, ++launched) {
    const auto start = Clock::now();
    subject.run(kernel, memory, steps, kWords);
    subject.finish();
    took = std::chrono::duration<double, std::milli>{Clock::now() - start}.count();
    if (attempt < 9) steps = static_cast<cl_uint>(steps * tried / took);
  }
  steps = static_cast<cl_uint>(steps * wanted / tried);
  took *= wanted / tried;
  const auto add = [&] {
    for (size_t next = 0; next < count; ++next, ++launched) subject.run(kernel, memory, steps, kWords);
    check(clFlush(subject.queue), "clFlush");
  };
  add();
  tell_ready();
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

void native() {
  Subject subject;
  cl_kernel increment = subject.kernel("increment");
  cl_mem memory = subject.zeroes(1);
  check(clSetKernelArg(increment, 0, sizeof memory, &memory), "clSetKernelArg");
  cl_device_exec_capabilities can = 0;
  check(clGetDeviceInfo(subject.device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, nullptr),
        "clGetDeviceInfo");
  const bool is_native = (can & CL_EXEC_NATIVE_KERNEL) != 0;
  static cl_uint ran = 0;
  Rounds rounds;
  while (rounds.next()) {
    rounds.begin();
    const size_t one = 1;
    const auto run = [](void*) { ++ran; };
    check(is_native ? clEnqueueNativeKernel(subject.queue, run, nullptr, 0, 0, nullptr, nullptr, 0, nullptr, nullptr)
                    : clEnqueueNDRangeKernel(subject.queue, increment, 1, nullptr, &one, nullptr, 0, nullptr, nullptr),
          "a kernel");
    subject.finish();
  }
  if ((is_native ? ran : subject.read(memory, 1)[0]) != rounds.number()) fail("kernels are missing");
  std::printf("{\"native\": %s} right\n", is_native ? "true" : "false");
}

void formats() {
  Subject subject;
  cl_uint count = 0;
  check(clGetSupportedImageFormats(subject.context, CL_MEM_READ_ONLY, CL_MEM_OBJECT_IMAGE2D, 0, nullptr, &count),
        "clGetSupportedImageFormats");
  char version[256] = "";
  check(clGetDeviceInfo(subject.device, CL_DEVICE_OPENCL_C_VERSION, sizeof version, version, nullptr),
        "clGetDeviceInfo");
  cl_ulong memory = 0;
  check(clGetDeviceInfo(subject.device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, nullptr), "clGetDeviceInfo");
  Rounds rounds;
  while (rounds.next()) {
    rounds.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  std::printf("{\"formats\": %u, \"version\": \"%.12s\", \"memory\": %llu} right\n", count, version,
              static_cast<unsigned long long>(memory));
}

void count() {
  constexpr size_t kWords = 1 << 12;
  Subject subject;
  cl_kernel increment = subject.kernel("increment");
  cl_mem memory = subject.zeroes(kWords);
  tell_ready();
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

}  // namespace subject
