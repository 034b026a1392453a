// LocalExecutor: whether a device works on host memory itself. OpenCL lets a driver work on a copy of such memory until
// it is mapped, so what a driver does is found out by trying.
#include <array>

#include "executor/local.hpp"
#include "executor/vendor.hpp"

namespace grus {
namespace {

constexpr std::size_t kTried = 4096;

struct Trial {
  explicit Trial(cl_device_id on) : call{functions(on)} {
    context = call.clCreateContext(nullptr, 1, &on, nullptr, nullptr, nullptr);
    if (!context) return;
    queue = call.clCreateCommandQueue(context, on, 0, nullptr);
    buffer = call.clCreateBuffer(context, CL_MEM_USE_HOST_PTR, kTried, memory.data(), nullptr);
  }
  ~Trial() {
    if (buffer) call.clReleaseMemObject(buffer);
    if (queue) call.clReleaseCommandQueue(queue);
    if (context) call.clReleaseContext(context);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool sees_what_the_host_writes() {
    memory[1] = 1;
    std::array<unsigned char, kTried> seen{};
    return call.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, kTried, seen.data(), 0, nullptr, nullptr) ==
               CL_SUCCESS &&
           seen[1] == 1;
  }
  bool writes_what_the_host_sees() {
    const unsigned char pattern = 2;
    return call.clEnqueueFillBuffer(queue, buffer, &pattern, 1, 0, kTried, 0, nullptr, nullptr) == CL_SUCCESS &&
           call.clFinish(queue) == CL_SUCCESS && memory[kTried - 1] == pattern;
  }

  const cl_icd_dispatch& call;
  alignas(4096) std::array<unsigned char, kTried> memory{};
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  cl_mem buffer = nullptr;
};

}  // namespace

bool LocalExecutor::works_in_place(ObjectId id) {
  cl_device_id device = devices_[id];
  const std::lock_guard lock{in_place_mutex_};
  const auto [known, is_new] = in_place_.emplace(device, false);
  if (!is_new) return known->second;
  cl_device_type type = 0;
  functions(device).clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, nullptr);
  if (!(type & CL_DEVICE_TYPE_CPU) || treats_memory_as_own())
    return false;  // what a GPU has in its caches is not for the host to see
  Trial trial{device};
  known->second = trial.buffer && trial.queue && trial.sees_what_the_host_writes() && trial.writes_what_the_host_sees();
  return known->second;
}

}  // namespace grus
