// A program that takes too much. --build: of the compiler's time. --objects COUNT: so many buffers at once. --print
// COUNT: so many kernels print 20 KiB each. --memory: 64 MiB for each line that it reads; says with which error, or 0.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "device.hpp"

namespace {

// Every line doubles what the one before becomes: no compiler comes to an end with that.
std::string endless_source() {
  std::string source = "#define A0 x += x * 3;\n";
  for (int line = 1; line < 50; ++line) {
    const std::string before = "A" + std::to_string(line - 1);
    source += "#define A" + std::to_string(line) + " " + before + " " + before + "\n";
  }
  return source + "kernel void endless(global uint* to) { uint x = *to; A49 *to = x; }\n";
}

void build(cl_context context) {
  const std::string text = endless_source();
  const char* source = text.c_str();
  cl_int code = CL_SUCCESS;
  cl_program program = clCreateProgramWithSource(context, 1, &source, nullptr, &code);
  check(code, "program");
  check(clBuildProgram(program, 0, nullptr, "", nullptr, nullptr), "build");
}

void make_objects(const Opened& device, std::size_t count) {
  std::vector<cl_mem> all;
  for (std::size_t made = 0; made < count; ++made) {
    cl_int code = CL_SUCCESS;
    all.push_back(clCreateBuffer(device.context, CL_MEM_READ_WRITE, 64, nullptr, &code));
    check(code, "buffer");
  }
  check(clFinish(device.queue), "finish");
  for (cl_mem one : all) check(clReleaseMemObject(one), "release");
}

void print(const Opened& device, std::size_t count) {
  const char* source = R"CLC(kernel void say() { printf("item %4d says hello\n", (int)get_global_id(0)); })CLC";
  cl_int code = CL_SUCCESS;
  cl_program program = clCreateProgramWithSource(device.context, 1, &source, nullptr, &code);
  check(clBuildProgram(program, 0, nullptr, "", nullptr, nullptr), "build");
  cl_kernel kernel = clCreateKernel(program, "say", &code);
  check(code, "kernel");
  const std::size_t items = 1024;
  for (std::size_t launch = 0; launch < count; ++launch) {
    check(clEnqueueNDRangeKernel(device.queue, kernel, 1, nullptr, &items, nullptr, 0, nullptr, nullptr), "launch");
    check(clFinish(device.queue), "finish");
  }
}

cl_int take_memory(const Opened& device) {
  const std::size_t size = std::size_t{64} << 20U;
  const cl_uint zero = 0;
  cl_int code = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(device.context, CL_MEM_READ_WRITE, size, nullptr, &code);
  if (code != CL_SUCCESS) return code;
  code = clEnqueueFillBuffer(device.queue, buffer, &zero, sizeof zero, 0, size, 0, nullptr, nullptr);
  if (code == CL_SUCCESS) code = clFinish(device.queue);
  if (code != CL_SUCCESS) clReleaseMemObject(buffer);
  return code;
}

void take_memory_as_told(const Opened& device) {
  char line[16];
  while (std::fgets(line, sizeof line, stdin)) {
    std::printf("%d\n", take_memory(device));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 1 ? arguments[1] : "";
  const Opened device = open_device();
  if (what == "--build") build(device.context);
  if (what == "--objects" && count > 2) make_objects(device, std::strtoul(arguments[2], nullptr, 10));
  if (what == "--print" && count > 2) print(device, std::strtoul(arguments[2], nullptr, 10));
  if (what == "--memory") take_memory_as_told(device);
  return 0;
}
