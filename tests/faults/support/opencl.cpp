#include "faults/support/opencl.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "faults/support/process.hpp"

namespace grus::test {
namespace {

cl_icd_dispatch g_functions{};

constexpr const char* kSource = R"(
kernel void increment(global int* data) { data[get_global_id(0)] += 1; }
kernel void work_long(global int* data, int rounds) {
  int sum = data[get_global_id(0)];
  for (int round = 0; round < rounds; ++round) sum = sum * 1664525 + 1013904223;
  if (sum == 42) data[0] = 0;
}
)";

std::string text_of(auto get, auto handle, cl_uint query) {
  std::string text(256, '\0');
  std::size_t size = 0;
  if (get(handle, query, text.size(), text.data(), &size) != CL_SUCCESS || size == 0) return {};
  return text.substr(0, size - 1);
}

}  // namespace

const cl_icd_dispatch& cl() {
  if (!g_functions.clGetPlatformIDs) use_loader(dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL));
  return g_functions;
}

void use_loader(void* library) {
  require(library != nullptr, "an ICD loader is installed");
#define GRUS_CALL(name, since, family, kind) \
  g_functions.name = reinterpret_cast<decltype(g_functions.name)>(dlsym(library, #name));
#include "api/calls.inc"
#undef GRUS_CALL
}

std::vector<Listed> list_platforms() {
  cl_uint count = 0;
  if (cl().clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS) return {};
  std::vector<cl_platform_id> handles(count);
  cl().clGetPlatformIDs(count, handles.data(), nullptr);
  std::vector<Listed> all;
  for (cl_platform_id handle : handles) {
    Listed listed{handle, text_of(cl().clGetPlatformInfo, handle, CL_PLATFORM_NAME), {}};
    cl_uint devices = 0;
    if (cl().clGetDeviceIDs(handle, CL_DEVICE_TYPE_ALL, 0, nullptr, &devices) == CL_SUCCESS) {
      listed.devices.resize(devices);
      cl().clGetDeviceIDs(handle, CL_DEVICE_TYPE_ALL, devices, listed.devices.data(), nullptr);
    }
    all.push_back(std::move(listed));
  }
  return all;
}

std::string list_devices() {
  std::string text;
  for (const Listed& listed : list_platforms()) {
    if (listed.devices.empty()) text += listed.name + "\n";
    for (cl_device_id device : listed.devices) {
      text += listed.name + ": " + text_of(cl().clGetDeviceInfo, device, CL_DEVICE_NAME) + "\n";
    }
  }
  return text;
}

Workload::Workload(const std::string& platform_name) {
  for (const Listed& listed : list_platforms()) {
    if (listed.name != platform_name || listed.devices.empty()) continue;
    platform = listed.platform;
    device = listed.devices.front();
  }
  require(device != nullptr, "there is a device of " + platform_name);
  cl_int code = CL_SUCCESS;
  context = cl().clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  require(code == CL_SUCCESS, "clCreateContext");
  queue = cl().clCreateCommandQueue(context, device, 0, &code);
  require(code == CL_SUCCESS, "clCreateCommandQueue");
  std::vector<cl_int> zeros(kItems);
  buffer = cl().clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, kItems * sizeof(cl_int), zeros.data(),
                               &code);
  require(code == CL_SUCCESS, "clCreateBuffer");
  const char* source = kSource;
  program = cl().clCreateProgramWithSource(context, 1, &source, nullptr, &code);
  require(code == CL_SUCCESS, "clCreateProgramWithSource");
  require(cl().clBuildProgram(program, 0, nullptr, nullptr, nullptr, nullptr) == CL_SUCCESS, "clBuildProgram");
  kernel = cl().clCreateKernel(program, "increment", &code);
  require(code == CL_SUCCESS, "clCreateKernel");
  long_kernel = cl().clCreateKernel(program, "work_long", &code);
  require(code == CL_SUCCESS, "clCreateKernel");
  for (cl_kernel each : {kernel, long_kernel}) {
    require(cl().clSetKernelArg(each, 0, sizeof buffer, &buffer) == CL_SUCCESS, "clSetKernelArg");
  }
}

Workload::~Workload() {
  require(cl().clReleaseKernel(long_kernel) == CL_SUCCESS, "clReleaseKernel");
  require(cl().clReleaseKernel(kernel) == CL_SUCCESS, "clReleaseKernel");
  require(cl().clReleaseProgram(program) == CL_SUCCESS, "clReleaseProgram");
  require(cl().clReleaseMemObject(buffer) == CL_SUCCESS, "clReleaseMemObject");
  require(cl().clReleaseCommandQueue(queue) == CL_SUCCESS, "clReleaseCommandQueue");
  require(cl().clReleaseContext(context) == CL_SUCCESS, "clReleaseContext");
}

void Workload::launch(cl_uint wait_count, const cl_event* waits, cl_event* event) const {
  const cl_int code =
      cl().clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &kItems, nullptr, wait_count, waits, event);
  require(code == CL_SUCCESS, "clEnqueueNDRangeKernel");
}

void Workload::launch_long(cl_int rounds) const {
  require(cl().clSetKernelArg(long_kernel, 1, sizeof rounds, &rounds) == CL_SUCCESS, "clSetKernelArg");
  const cl_int code =
      cl().clEnqueueNDRangeKernel(queue, long_kernel, 1, nullptr, &kItems, nullptr, 0, nullptr, nullptr);
  require(code == CL_SUCCESS, "clEnqueueNDRangeKernel");
}

void Workload::warm_up() {
  launch_long(1);
  use();
}

std::vector<cl_int> Workload::read() const {
  std::vector<cl_int> values(kItems);
  const cl_int code =
      cl().clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, kItems * sizeof(cl_int), values.data(), 0, nullptr, nullptr);
  require(code == CL_SUCCESS, "clEnqueueReadBuffer");
  return values;
}

void Workload::use() {
  const cl_int before = read().front();
  launch();
  const auto after = read();
  require(std::all_of(after.begin(), after.end(), [&](cl_int value) { return value == before + 1; }), "results");
}

}  // namespace grus::test
