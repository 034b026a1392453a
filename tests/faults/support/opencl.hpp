// OpenCL for the processes of the fault tests, through the ICD loader that the system has.
#pragma once

#include <CL/cl_icd.h>

#include <string>
#include <vector>

namespace grus::test {

// The loader's functions. It is loaded when first asked for, by the process that asks, unless use_loader came first.
const cl_icd_dispatch& cl();
void use_loader(void* library);  // from now on

struct Listed {
  cl_platform_id platform;
  std::string name;
  std::vector<cl_device_id> devices;
};
std::vector<Listed> list_platforms();
// "Grus Fake: Grus Fake device\n", a line for each device; "Grus Fake\n" for a platform without any.
std::string list_devices();

// A context with a queue, a buffer of 64 integers that are all 0, and a kernel that adds 1 to each. All of it is
// released with this. Ends the process (see require) if anything fails.
class Workload {
 public:
  static constexpr std::size_t kItems = 64;

  explicit Workload(const std::string& platform_name);
  ~Workload();
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  void launch(cl_uint wait_count = 0, const cl_event* waits = nullptr, cl_event* event = nullptr) const;
  void launch_long(cl_int rounds = 20'000'000) const;  // some hundred milliseconds on a CPU
  std::vector<cl_int> read() const;
  // Launches, and sees whether every integer has become one more.
  void use();
  // Runs both kernels to their end. PoCL compiles when a command runs, and crashes if the process ends meanwhile,
  // natively as well.
  void warm_up();

  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  cl_mem buffer = nullptr;
  cl_program program = nullptr;
  cl_kernel kernel = nullptr;
  cl_kernel long_kernel = nullptr;
};

inline constexpr const char* kPocl = "Portable Computing Language";
inline constexpr const char* kFake = "Grus Fake";

}  // namespace grus::test
