// One of several programs that use a device at the same time. Prints "ready", waits for a line, and runs kernels of one
// length for some seconds; then prints what it did, as JSON. Their results are checked: each goes on where the one
// before ended.
// --ms MILLISECONDS: of a kernel, alone (1). --seconds SECONDS (1). --depth COUNT: commands that are enqueued before
// one is waited for (8). --items COUNT: work-items of a kernel (1), among which its time is divided. --endless: a
// kernel that doesn't end, instead.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "device.hpp"

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSource = R"CLC(
kernel void spin(global const uint* from, global uint* to, ulong rounds) {
  size_t place = get_global_id(0) % 65536;
  uint own = from[place];
  for (ulong round = 0; round < rounds; ++round) own = own * 1664525u + 1013904223u;
  to[place] = own;
}
)CLC";
constexpr std::size_t kPlaces = 65536;

// What so many rounds make of 0: the map is applied twice, four times, and so on.
std::uint32_t after(std::uint64_t rounds) {
  std::uint32_t value = 0;
  std::uint32_t factor = 1664525;
  std::uint32_t summand = 1013904223;
  for (; rounds != 0; rounds >>= 1U) {
    if (rounds & 1U) value = value * factor + summand;
    summand = factor * summand + summand;
    factor *= factor;
  }
  return value;
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>{Clock::now() - start}.count();
}

class Tenant {
 public:
  explicit Tenant(std::size_t items) : items_{items} {
    const auto [context, queue] = open_device();
    queue_ = queue;
    cl_int code = CL_SUCCESS;
    const char* source = kSource;
    cl_program program = clCreateProgramWithSource(context, 1, &source, nullptr, &code);
    check(clBuildProgram(program, 0, nullptr, "", nullptr, nullptr), "build");
    kernel_ = clCreateKernel(program, "spin", &code);
    check(code, "kernel");
    std::vector<cl_uint> zeroes(kPlaces);
    for (cl_mem& buffer : values_) {
      buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, kPlaces * sizeof(cl_uint),
                              zeroes.data(), &code);
      check(code, "buffer");
    }
  }

  cl_event launch(std::uint64_t rounds) {
    const cl_ulong value = rounds;
    check(clSetKernelArg(kernel_, 0, sizeof(cl_mem), &values_[0]), "argument");
    check(clSetKernelArg(kernel_, 1, sizeof(cl_mem), &values_[1]), "argument");
    check(clSetKernelArg(kernel_, 2, sizeof value, &value), "argument");
    std::swap(values_[0], values_[1]);
    cl_event event = nullptr;
    check(clEnqueueNDRangeKernel(queue_, kernel_, 1, nullptr, &items_, &group_, 0, nullptr, &event), "launch");
    all_ += rounds;
    return event;
  }
  void run_one(std::uint64_t rounds) {
    cl_event event = launch(rounds);
    check(clWaitForEvents(1, &event), "wait");
    clReleaseEvent(event);
  }

  // That take so long: the fastest of a few, of so many that starting a kernel doesn't count.
  std::uint64_t rounds_for(double milliseconds) {
    run_one(1);
    for (std::uint64_t tried = std::max<std::uint64_t>(1, 2'000'000 / items_);; tried *= 4) {
      double best = 1e9;
      for (int turn = 0; turn < 5; ++turn) {
        const auto start = Clock::now();
        run_one(tried);
        best = std::min(best, milliseconds_since(start));
      }
      if (best >= std::clamp(milliseconds, 2.0, 50.0))
        return static_cast<std::uint64_t>(std::max(1.0, milliseconds / best * static_cast<double>(tried)));
    }
  }

  void check_results() {
    std::vector<cl_uint> found(std::min(items_, kPlaces));
    const std::size_t size = found.size() * sizeof(cl_uint);
    check(clEnqueueReadBuffer(queue_, values_[0], CL_TRUE, 0, size, found.data(), 0, nullptr, nullptr), "read");
    for (const cl_uint one : found) {
      if (one == after(all_)) continue;
      std::fprintf(stderr, "%u instead of %u\n", one, after(all_));
      std::exit(1);
    }
  }

  void flush() { clFlush(queue_); }

 private:
  const std::size_t items_;
  const std::size_t group_ = items_ % 64 == 0 ? 64 : 1;
  cl_command_queue queue_ = nullptr;
  cl_kernel kernel_ = nullptr;
  cl_mem values_[2] = {};  // the next kernel's input and output: places that many work-items share
  std::uint64_t all_ = 0;
};

double at_part(std::vector<double>& sorted, double part) {
  return sorted.empty() ? 0 : sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
}

void run(Tenant& tenant, std::uint64_t rounds, double seconds, std::size_t depth) {
  struct Sent {
    cl_event event;
    Clock::time_point at;
  };
  std::deque<Sent> sent;
  std::vector<double> waits;
  double longest_gap = 0;
  std::uint64_t in_time = 0;
  const auto start = Clock::now();
  auto last = start;
  const auto is_over = [&] { return milliseconds_since(start) > seconds * 1000; };
  while (!is_over() || !sent.empty()) {
    if (!is_over() && sent.size() < depth) {
      const auto now = Clock::now();
      sent.push_back({tenant.launch(rounds), now});
      continue;
    }
    check(clWaitForEvents(1, &sent.front().event), "wait");
    clReleaseEvent(sent.front().event);
    waits.push_back(milliseconds_since(sent.front().at));
    longest_gap = std::max(longest_gap, milliseconds_since(last));
    last = Clock::now();
    if (!is_over()) ++in_time;
    sent.pop_front();
  }
  tenant.check_results();
  std::sort(waits.begin(), waits.end());
  std::printf(
      "{\"kernels\": %llu, \"rounds\": %llu, \"ms_per_wait\": %.3f, \"p99_wait_ms\": %.3f, \"longest_wait_ms\": %.3f, "
      "\"longest_gap_ms\": %.3f}\n",
      static_cast<unsigned long long>(in_time), static_cast<unsigned long long>(in_time * rounds), at_part(waits, 0.5),
      at_part(waits, 0.99), at_part(waits, 1), longest_gap);
}

}  // namespace

int main(int count, char** arguments) {
  double milliseconds = 1;
  double seconds = 1;
  std::size_t depth = 8;
  std::size_t items = 1;
  bool is_endless = false;
  for (int index = 1; index < count; ++index) {
    const std::string name = arguments[index];
    if (name == "--endless") {
      is_endless = true;
    } else if (index + 1 < count) {
      const double value = std::atof(arguments[++index]);
      if (name == "--ms") milliseconds = value;
      if (name == "--seconds") seconds = value;
      if (name == "--items") items = static_cast<std::size_t>(value);
      if (name == "--depth") depth = static_cast<std::size_t>(value);
    }
  }
  Tenant tenant{items};
  const std::uint64_t rounds = tenant.rounds_for(milliseconds);
  std::printf("ready\n");
  std::fflush(stdout);
  char line[16];
  if (!std::fgets(line, sizeof line, stdin)) return 1;
  if (is_endless) {
    tenant.run_one(std::uint64_t{1} << 62U);
  } else {
    run(tenant, rounds, seconds, depth);
  }
  return 0;
}
