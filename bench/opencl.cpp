#include "opencl.hpp"

#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
#include <fmt/format.h>

#include <vector>

namespace bench {
namespace {

template <class Query>
std::string query_text(Query query, const char* what) {
  size_t size = 0;
  check(query(0, nullptr, &size), what);
  std::string text(size, '\0');
  check(query(size, text.data(), nullptr), what);
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string platform_name(cl_platform_id platform, cl_platform_info what) {
  return query_text(
      [&](size_t size, void* to, size_t* got) { return clGetPlatformInfo(platform, what, size, to, got); },
      "clGetPlatformInfo");
}

std::string device_name(cl_device_id device, cl_device_info what) {
  return query_text([&](size_t size, void* to, size_t* got) { return clGetDeviceInfo(device, what, size, to, got); },
                    "clGetDeviceInfo");
}

std::vector<cl_platform_id> platforms() {
  cl_uint count = 0;
  if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS) return {};
  std::vector<cl_platform_id> found(count);
  check(clGetPlatformIDs(count, found.data(), nullptr), "clGetPlatformIDs");
  return found;
}

std::vector<cl_device_id> devices(cl_platform_id platform) {
  cl_uint count = 0;
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) return {};
  std::vector<cl_device_id> found(count);
  check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, found.data(), nullptr), "clGetDeviceIDs");
  return found;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

void fail(const char* what, cl_int code) { throw Failure(fmt::format("{} returned {}", what, code)); }

void Device::choose(const Choice& choice) {
  std::string seen;
  for (auto* platform : platforms()) {
    const auto name = platform_name(platform, CL_PLATFORM_NAME);
    for (auto* device : devices(platform)) {
      const auto device_text = device_name(device, CL_DEVICE_NAME);
      seen += fmt::format("\n  {} / {}", name, device_text);
      if (!contains(name, choice.platform) || !contains(device_text, choice.device)) continue;
      platform_ = platform;
      id_ = device;
      return;
    }
  }
  throw Failure(fmt::format("no device whose platform's name contains '{}' and whose own contains '{}'; there {}",
                            choice.platform, choice.device, seen.empty() ? "is none at all" : "are:" + seen));
}

Device::Device(const Choice& choice) {
  choose(choice);
  check(clGetDeviceInfo(id_, CL_DEVICE_TYPE, sizeof type_, &type_, nullptr), "clGetDeviceInfo");
  cl_int code = CL_SUCCESS;
  context_.reset(clCreateContext(nullptr, 1, &id_, nullptr, nullptr, &code));
  check(code, "clCreateContext");
  queue_.reset(clCreateCommandQueue(context(), id_, 0, &code));
  check(code, "clCreateCommandQueue");
}

void Device::build(const char* source, const std::string& options) {
  cl_int code = CL_SUCCESS;
  program_.reset(clCreateProgramWithSource(context(), 1, &source, nullptr, &code));
  check(code, "clCreateProgramWithSource");
  if (clBuildProgram(program_.get(), 1, &id_, options.c_str(), nullptr, nullptr) == CL_SUCCESS) return;
  const auto log = query_text(
      [&](size_t size, void* to, size_t* got) {
        return clGetProgramBuildInfo(program_.get(), id_, CL_PROGRAM_BUILD_LOG, size, to, got);
      },
      "clGetProgramBuildInfo");
  throw Failure("the kernels don't build:\n" + log);
}

std::string Device::platform_text(cl_platform_info what) const { return platform_name(platform_, what); }
std::string Device::text(cl_device_info what) const { return device_name(id_, what); }

Kernel Device::kernel(const char* name) const {
  cl_int code = CL_SUCCESS;
  Kernel kernel{clCreateKernel(program_.get(), name, &code)};
  check(code, "clCreateKernel");
  return kernel;
}

Buffer Device::buffer(size_t size, cl_mem_flags flags, void* host) const {
  cl_int code = CL_SUCCESS;
  Buffer buffer{clCreateBuffer(context(), flags, size, host, &code)};
  check(code, "clCreateBuffer");
  return buffer;
}

}  // namespace bench
