// Waves on a pond, computed by the device: drops fall, circles spread and are thrown back by the banks. Shows the pond as
// it goes (in a terminal as a picture, elsewhere as a counter) and prints a checksum of the water at the end. Knows nothing
// of Grus.
#include <CL/cl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr const char* kSource = R"CLC(
kernel void ripple(global const float* now, global const float* before, global float* next, uint width, uint height,
                   uint step) {
  const uint x = get_global_id(0), y = get_global_id(1), at = y * width + x;
  if (x == 0 || y == 0 || x == width - 1 || y == height - 1) { next[at] = 0; return; }
  const float around = now[at - 1] + now[at + 1] + now[at - width] + now[at + width] - 4 * now[at];
  float level = (2 * now[at] - before[at] + 0.24f * around) * 0.9995f;
  // A drop every 150 steps, each elsewhere.
  const uint drop = step / 150, dropX = (drop * 7919u + 137u) % width, dropY = (drop * 104729u + 61u) % height;
  if (step % 150 == 0 && abs_diff(x, dropX) < 4 && abs_diff(y, dropY) < 4) level += 6;
  next[at] = level;
}
)CLC";
constexpr cl_uint kWidth = 1024;
constexpr cl_uint kHeight = 512;
constexpr size_t kCells = size_t{kWidth} * kHeight;
constexpr cl_uint kStepsPerPicture = 50;

void check(cl_int code, const char* what) {
  if (code == CL_SUCCESS) return;
  std::fprintf(stderr, "pond: %s: OpenCL error %d\n", what, code);
  std::exit(1);
}

void show(const std::vector<float>& water, cl_uint step, cl_uint steps) {
  if (!isatty(STDOUT_FILENO)) {
    if (step % (steps / 10) < kStepsPerPicture) std::printf("  step %u of %u\n", step, steps);
    std::fflush(stdout);
    return;
  }
  constexpr cl_uint kColumns = 76;
  constexpr cl_uint kLines = 18;
  constexpr char kShades[] = " .:-=+*#%@";
  std::string picture = "\033[H";
  for (cl_uint line = 0; line < kLines; ++line) {
    picture += "  ";
    for (cl_uint column = 0; column < kColumns; ++column) {
      const float level = water[size_t{line * kHeight / kLines} * kWidth + column * kWidth / kColumns];
      const int shade = static_cast<int>(4 + 40 * level);
      picture += kShades[shade < 0 ? 0 : shade > 9 ? 9 : shade];
    }
    picture += "\033[K\n";
  }
  std::printf("%s  step %u of %u\033[K\n", picture.c_str(), step, steps);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const cl_uint steps = argc > 1 ? static_cast<cl_uint>(std::strtoul(argv[1], nullptr, 10)) : 6000;
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl_int code = CL_SUCCESS;
  check(clGetPlatformIDs(1, &platform, nullptr), "clGetPlatformIDs");
  check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), "clGetDeviceIDs");
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  check(code, "clCreateContext");
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
  check(code, "clCreateCommandQueue");
  cl_program program = clCreateProgramWithSource(context, 1, const_cast<const char**>(&kSource), nullptr, &code);
  check(code, "clCreateProgramWithSource");
  check(clBuildProgram(program, 1, &device, "", nullptr, nullptr), "clBuildProgram");
  cl_kernel ripple = clCreateKernel(program, "ripple", &code);
  check(code, "clCreateKernel");
  std::vector<float> water(kCells, 0.0F);
  cl_mem levels[3];
  for (cl_mem& level : levels) {
    level = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, kCells * sizeof(float), water.data(), &code);
    check(code, "clCreateBuffer");
  }
  if (isatty(STDOUT_FILENO)) std::printf("\033[2J");
  for (cl_uint step = 0; step < steps; ++step) {
    const cl_mem used[3] = {levels[step % 3], levels[(step + 2) % 3], levels[(step + 1) % 3]};
    for (cl_uint index = 0; index < 3; ++index) check(clSetKernelArg(ripple, index, sizeof(cl_mem), &used[index]), "argument");
    check(clSetKernelArg(ripple, 3, sizeof kWidth, &kWidth), "argument");
    check(clSetKernelArg(ripple, 4, sizeof kHeight, &kHeight), "argument");
    check(clSetKernelArg(ripple, 5, sizeof step, &step), "argument");
    const size_t size[2] = {kWidth, kHeight};
    check(clEnqueueNDRangeKernel(queue, ripple, 2, nullptr, size, nullptr, 0, nullptr, nullptr), "clEnqueueNDRangeKernel");
    if ((step + 1) % kStepsPerPicture != 0 && step + 1 != steps) continue;
    check(clEnqueueReadBuffer(queue, used[2], CL_TRUE, 0, kCells * sizeof(float), water.data(), 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
    show(water, step + 1, steps);
  }
  std::uint64_t sum = 14695981039346656037ULL;
  for (size_t at = 0; at < kCells * sizeof(float); ++at)
    sum = (sum ^ reinterpret_cast<const unsigned char*>(water.data())[at]) * 1099511628211ULL;
  std::printf("checksum %016llx\n", static_cast<unsigned long long>(sum));
}
