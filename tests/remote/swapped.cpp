// A program whose buffers may be more than its part of the device's memory. Works on all of them, in pairs, again and
// again, and compares what is in them with what must be there. Says "ready" once it has them, and "done".
// --buffers COUNT (12), --mib SIZE of each (4), --rounds COUNT (3). --wait: for a line, after "ready". --view: a part
// of the first buffer is another object's, too. --fails: the first use of a buffer must fail, for want of memory.
// --dull: what they have in them can be packed. --long: one kernel of several seconds begins before "ready" is said.
// --another: it makes another context before that.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "device.hpp"

namespace {

constexpr const char* kSource = R"CLC(
kernel void blend(global uint* to, global const uint* from, uint round) {
  const size_t item = get_global_id(0);
  to[item] = to[item] * 1664525u + from[item] + round;
}
kernel void dwell(global uint* to, uint rounds) {
  uint own = to[get_global_id(0)];
  for (uint round = 0; round < rounds; ++round) own = own * 1664525u + 1013904223u;
  to[get_global_id(0)] = own;
}
)CLC";

struct Options {
  std::size_t buffers = 12;
  std::size_t mib = 4;
  std::uint32_t rounds = 3;
  bool waits = false;
  bool has_view = false;
  bool fails = false;
  bool is_dull = false;
  bool is_long = false;
  bool has_another = false;
};

struct Buffer {
  cl_mem handle = nullptr;
  std::vector<std::uint32_t> expected;
};

class Program {
 public:
  explicit Program(const Options& options) : options_{options}, items_{(options.mib << 20U) / sizeof(cl_uint)} {
    device_ = open_device();
    cl_int code = CL_SUCCESS;
    const char* source = kSource;
    cl_program program = clCreateProgramWithSource(device_.context, 1, &source, nullptr, &code);
    check(clBuildProgram(program, 0, nullptr, "", nullptr, nullptr), "build");
    kernel_ = clCreateKernel(program, "blend", &code);
    check(code, "kernel");
    dwell_ = clCreateKernel(program, "dwell", &code);
    check(code, "kernel");
    for (std::size_t index = 0; index < options.buffers; ++index) make(index);
  }

  void run() {
    for (std::uint32_t round = 0; round < options_.rounds; ++round) {
      for (std::size_t index = 0; index < buffers_.size(); ++index)
        blend(buffers_[index], buffers_[(index * 5 + 1 + round) % buffers_.size()], round);
    }
    check(clFinish(device_.queue), "finish");
  }

  void dwell() {
    std::uint32_t rounds = 64;
    for (std::chrono::duration<double> took{}; took.count() < 0.2; rounds *= 2) {
      const auto start = std::chrono::steady_clock::now();
      dwell(rounds);
      check(clFinish(device_.queue), "finish");
      took = std::chrono::steady_clock::now() - start;
    }
    dwell(rounds * 20);
    check(clFlush(device_.queue), "flush");
  }

  void compare() {
    std::vector<std::uint32_t> found(items_);
    for (std::size_t index = 0; index < buffers_.size(); ++index) {
      check(clEnqueueReadBuffer(device_.queue, buffers_[index].handle, CL_TRUE, 0, items_ * sizeof(cl_uint),
                                found.data(), 0, nullptr, nullptr),
            "read");
      if (found == buffers_[index].expected) continue;
      std::fprintf(stderr, "buffer %zu is wrong\n", index);
      std::exit(1);
    }
  }

  // Of a buffer that doesn't fit in.
  void fail() {
    const cl_uint zero = 0;
    cl_int code = clEnqueueFillBuffer(device_.queue, buffers_[0].handle, &zero, sizeof zero, 0,
                                      items_ * sizeof(cl_uint), 0, nullptr, nullptr);
    if (code == CL_SUCCESS) code = clFinish(device_.queue);
    if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE) return;
    std::fprintf(stderr, "%d instead of CL_MEM_OBJECT_ALLOCATION_FAILURE\n", code);
    std::exit(1);
  }

 private:
  // Every third has contents from the beginning, every third is written later, and every third is used as it is.
  void make(std::size_t index) {
    Buffer buffer;
    buffer.expected.resize(items_);
    if (index % 3 != 2 && !options_.fails) {
      for (std::size_t item = 0; item < items_; ++item)
        buffer.expected[item] =
            static_cast<std::uint32_t>((options_.is_dull ? item >> 12U : item) * 2654435761U + index);
    }
    cl_int code = CL_SUCCESS;
    const std::size_t size = items_ * sizeof(cl_uint);
    const bool is_filled = index % 3 == 0 && !options_.fails;
    buffer.handle = clCreateBuffer(device_.context, CL_MEM_READ_WRITE | (is_filled ? CL_MEM_COPY_HOST_PTR : 0), size,
                                   is_filled ? buffer.expected.data() : nullptr, &code);
    check(code, "buffer");
    if (index % 3 == 1)
      check(clEnqueueWriteBuffer(device_.queue, buffer.handle, CL_TRUE, 0, size, buffer.expected.data(), 0, nullptr,
                                 nullptr),
            "write");
    if (index == 0 && options_.has_view) {
      const cl_buffer_region region{0, size / 2};
      (void)clCreateSubBuffer(buffer.handle, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
      check(code, "sub-buffer");
    }
    buffers_.push_back(std::move(buffer));
  }

  void dwell(std::uint32_t rounds) {
    check(clSetKernelArg(dwell_, 0, sizeof buffers_[0].handle, &buffers_[0].handle), "argument");
    check(clSetKernelArg(dwell_, 1, sizeof rounds, &rounds), "argument");
    check(clEnqueueNDRangeKernel(device_.queue, dwell_, 1, nullptr, &items_, nullptr, 0, nullptr, nullptr), "launch");
    std::uint32_t factor = 1;
    std::uint32_t sum = 0;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      factor *= 1664525U;
      sum = sum * 1664525U + 1013904223U;
    }
    for (std::uint32_t& own : buffers_[0].expected) own = own * factor + sum;
  }

  void blend(Buffer& to, const Buffer& from, std::uint32_t round) {
    check(clSetKernelArg(kernel_, 0, sizeof to.handle, &to.handle), "argument");
    check(clSetKernelArg(kernel_, 1, sizeof from.handle, &from.handle), "argument");
    check(clSetKernelArg(kernel_, 2, sizeof round, &round), "argument");
    check(clEnqueueNDRangeKernel(device_.queue, kernel_, 1, nullptr, &items_, nullptr, 0, nullptr, nullptr), "launch");
    for (std::size_t item = 0; item < items_; ++item)
      to.expected[item] = to.expected[item] * 1664525U + from.expected[item] + round;
  }

  const Options options_;
  const std::size_t items_;
  Opened device_{};
  cl_kernel kernel_ = nullptr;
  cl_kernel dwell_ = nullptr;
  std::vector<Buffer> buffers_;
};

void say(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  for (int index = 1; index < count; ++index) {
    const std::string name = arguments[index];
    if (name == "--wait") options.waits = true;
    if (name == "--view") options.has_view = true;
    if (name == "--fails") options.fails = true;
    if (name == "--dull") options.is_dull = true;
    if (name == "--long") options.is_long = true;
    if (name == "--another") options.has_another = true;
    const std::size_t value = index + 1 < count ? std::strtoul(arguments[index + 1], nullptr, 10) : 0;
    if (name == "--buffers") options.buffers = value;
    if (name == "--mib") options.mib = value;
    if (name == "--rounds") options.rounds = static_cast<std::uint32_t>(value);
  }
  Program program{options};
  if (options.fails) {
    program.fail();
    return 0;
  }
  program.run();
  if (options.is_long) program.dwell();
  if (options.has_another) (void)open_device();
  say("ready");
  if (options.waits) (void)std::getchar();
  program.compare();
  program.run();
  program.compare();
  say("done");
  return 0;
}
