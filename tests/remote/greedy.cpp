// A program that takes too much. --build: of the compiler's time. --objects COUNT: so many buffers at once.
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

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 1 ? arguments[1] : "";
  const Opened device = open_device();
  if (what == "--build") build(device.context);
  if (what == "--objects" && count > 2) make_objects(device, std::strtoul(arguments[2], nullptr, 10));
  return 0;
}
