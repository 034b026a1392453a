// A program for the test guest: beats NAME HOST PORT. It runs one kernel after another until SIGTERM and has a clock
// that ticks every millisecond. Every 10 ms it sends a datagram, so that it can be seen from outside what happens when:
//   NAME kernels ticks longest-gap-between-kernels-us longest-gap-between-ticks-us
// with gaps by the guest's own clock, since the last datagram. At the end it checks every word, and prints one line.
#include <CL/cl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWorked = std::size_t{1} << 16;  // words that every kernel changes
constexpr std::size_t kIdle = std::size_t{1} << 20;    // words that stay as they were
constexpr std::size_t kMapped = std::size_t{1} << 16;  // words that are mapped all the time
constexpr const char* kSource = R"CLC(
kernel void fill(global uint* words, uint seed) { const uint i = get_global_id(0); words[i] = (i ^ seed) * 2654435761u; }
kernel void advance(global uint* words, uint step) {
  const uint i = get_global_id(0);
  words[i] = words[i] * 1664525u + 1013904223u + step;
}
)CLC";

volatile std::sig_atomic_t g_ended = 0;

[[noreturn]] void fail(const std::string& what, int code = 0) {
  std::printf("wrong: %s %d\n", what.c_str(), code);
  std::exit(1);
}

void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS) fail(what, code);
}

// The longest time between two events since it was last asked, the one that is under way included.
class Gap {
 public:
  void event() {
    const std::lock_guard lock{mutex_};
    const auto now = Clock::now();
    longest_ = std::max(longest_, now - last_);
    last_ = now;
    ++count_;
  }
  struct Seen {
    unsigned long count;
    long longest_us;
  };
  Seen take() {
    const std::lock_guard lock{mutex_};
    const auto longest = std::max(longest_, Clock::now() - last_);
    longest_ = {};
    return {count_, std::chrono::duration_cast<std::chrono::microseconds>(longest).count()};
  }

 private:
  std::mutex mutex_;  // guards all of it
  Clock::time_point last_ = Clock::now();
  Clock::duration longest_{};
  unsigned long count_ = 0;
};

int connected_socket(const char* host, const char* port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host, port, &hints, &found) != 0) fail("address");
  const int socket = ::socket(found->ai_family, found->ai_socktype, 0);
  if (socket < 0 || connect(socket, found->ai_addr, found->ai_addrlen) != 0) fail("socket");
  freeaddrinfo(found);
  return socket;
}

void tick(const std::atomic<bool>& ended, const std::string& name, int socket, Gap& kernels) {
  Gap ticks;
  for (unsigned long next = 1; !ended; ++next) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    ticks.event();
    if (next % 10 != 0) continue;
    const auto [kernel_count, kernel_gap] = kernels.take();
    const auto [tick_count, tick_gap] = ticks.take();
    char line[200];
    const int size = std::snprintf(line, sizeof line, "%s %lu %lu %ld %ld", name.c_str(), kernel_count, tick_count,
                                   kernel_gap, tick_gap);
    (void)send(socket, line, static_cast<std::size_t>(size), 0);
  }
}

struct Device {
  cl_context context;
  cl_command_queue queue;
  cl_program program;
};

Device open_device() {
  cl_platform_id platform{};
  cl_device_id device{};
  check(clGetPlatformIDs(1, &platform, nullptr), "platform");
  check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), "device");
  cl_int code = 0;
  Device opened{};
  opened.context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  check(code, "context");
  opened.queue = clCreateCommandQueueWithProperties(opened.context, device, nullptr, &code);
  check(code, "queue");
  const char* source = kSource;
  opened.program = clCreateProgramWithSource(opened.context, 1, &source, nullptr, &code);
  check(code, "program");
  check(clBuildProgram(opened.program, 1, &device, "", nullptr, nullptr), "build");
  return opened;
}

void launch(const Device& device, cl_kernel kernel, cl_mem words, cl_uint value, std::size_t count) {
  const std::size_t group = 64;
  check(clSetKernelArg(kernel, 0, sizeof words, &words), "argument");
  check(clSetKernelArg(kernel, 1, sizeof value, &value), "argument");
  check(clEnqueueNDRangeKernel(device.queue, kernel, 1, nullptr, &count, &group, 0, nullptr, nullptr), "launch");
  check(clFinish(device.queue), "finish");
}

void expect(const Device& device, cl_mem buffer, std::size_t count, cl_uint seed, cl_uint factor, cl_uint more) {
  std::vector<cl_uint> words(count);
  check(clEnqueueReadBuffer(device.queue, buffer, CL_TRUE, 0, 4 * count, words.data(), 0, nullptr, nullptr), "read");
  for (cl_uint i = 0; i < count; ++i) {
    if (words[i] != (i ^ seed) * 2654435761U * factor + more) fail("word", static_cast<int>(i));
  }
}

cl_mem make_buffer(const Device& device, std::size_t count) {
  cl_int code = 0;
  cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE, 4 * count, nullptr, &code);
  check(code, "buffer");
  return buffer;
}

cl_uint* map(const Device& device, cl_mem buffer, std::size_t count) {
  cl_int code = 0;
  void* const words = clEnqueueMapBuffer(device.queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, 4 * count, 0,
                                         nullptr, nullptr, &code);
  check(code, "map");
  return static_cast<cl_uint*>(words);
}

// Wherever the program went meanwhile, they are where they were.
void change_and_unmap(const Device& device, cl_mem buffer, cl_uint* words, cl_uint seed, cl_uint factor) {
  for (cl_uint i = 0; i < kMapped; ++i) {
    if (words[i] != (i ^ seed) * 2654435761U) fail("mapped word", static_cast<int>(i));
    words[i] *= factor;
  }
  check(clEnqueueUnmapMemObject(device.queue, buffer, words, 0, nullptr, nullptr), "unmap");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: beats NAME HOST PORT\n");
    return 2;
  }
  std::signal(SIGTERM, [](int) { g_ended = 1; });
  const Device device = open_device();
  cl_mem worked = make_buffer(device, kWorked);
  cl_mem idle = make_buffer(device, kIdle);
  cl_mem mapped = make_buffer(device, kMapped);
  cl_int code = 0;
  cl_kernel fill = clCreateKernel(device.program, "fill", &code);
  check(code, "kernel");
  cl_kernel advance = clCreateKernel(device.program, "advance", &code);
  check(code, "kernel");
  launch(device, fill, worked, 1, kWorked);
  launch(device, fill, idle, 2, kIdle);
  launch(device, fill, mapped, 3, kMapped);
  cl_uint* const words = map(device, mapped, kMapped);

  Gap kernels;
  std::atomic<bool> ended{false};
  std::thread clock{[&, name = std::string{argv[1]}, socket = connected_socket(argv[2], argv[3])] {
    tick(ended, name, socket, kernels);
  }};
  cl_uint factor = 1;
  cl_uint more = 0;
  unsigned long rounds = 0;
  for (; !g_ended; ++rounds) {
    const auto step = static_cast<cl_uint>(rounds);
    launch(device, advance, worked, step, kWorked);
    kernels.event();
    factor *= 1664525U;
    more = more * 1664525U + 1013904223U + step;
  }
  ended = true;
  clock.join();
  expect(device, worked, kWorked, 1, factor, more);
  expect(device, idle, kIdle, 2, 1, 0);
  change_and_unmap(device, mapped, words, 3, 5);
  expect(device, mapped, kMapped, 3, 5, 0);
  std::printf("right: %lu kernels\n", rounds);
  return 0;
}
