// What every workload works with: one device, and a clock for each phase of an OpenCL program. Plain OpenCL: nothing
// here knows about Grus.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "frame/beats.hpp"
#include "opencl.hpp"

namespace workload {

using bench::Buffer;
using bench::check;
using bench::Failure;
using bench::Kernel;

// The phases of LoGV's tables; what is in none of them is the program's own work on the host.
enum class Phase : std::uint8_t { init, build, allocate, to_device, kernels, from_device, close };
inline constexpr std::array kPhaseNames{"init", "build", "allocate", "to_device", "kernels", "from_device", "close"};

// Launches are made of whole groups, and tiled problems of whole tiles.
constexpr size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Up to three sizes, as launches take them.
class Range {
 public:
  Range(std::initializer_list<size_t> sizes) : dimensions_{static_cast<cl_uint>(sizes.size())} {
    size_t next = 0;
    for (const size_t size : sizes) sizes_.at(next++) = size;
  }
  cl_uint dimensions() const { return dimensions_; }
  const size_t* data() const { return dimensions_ == 0 ? nullptr : sizes_.data(); }

 private:
  cl_uint dimensions_;
  std::array<size_t, 3> sizes_{};
};

// Local memory as an argument of a launch.
struct Local {
  size_t bytes;
};

class Frame {
  class Timer {
   public:
    explicit Timer(double& seconds) : seconds_{seconds} {}
    ~Timer() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    using Clock = std::chrono::steady_clock;
    double& seconds_;
    Clock::time_point start_ = Clock::now();
  };

 public:
  // For calls that have no function here: their time counts for the phase.
  template <class Calls>
  auto timed(Phase phase, Calls calls) {
    const Timer timer{seconds_[static_cast<size_t>(phase)]};
    return calls();
  }

  explicit Frame(const bench::Choice& choice);

  void build(const char* source, const std::string& options = "");
  Kernel kernel(const char* name);
  Buffer buffer(size_t bytes, cl_mem_flags flags = CL_MEM_READ_WRITE, void* host = nullptr);
  template <class T>
  Buffer buffer_of(size_t count, cl_mem_flags flags = CL_MEM_READ_WRITE) {
    return buffer(count * sizeof(T), flags);
  }
  // Gives a buffer back before the end; the next of its size takes its place in the study.
  void release(Buffer& buffer);

  // Blocking copies of a whole array, to the start of a buffer and back.
  template <class T>
  void send(const Buffer& to, const std::vector<T>& from) {
    timed(Phase::to_device, [&] { device_.write(to.get(), 0, from.size() * sizeof(T), from.data()); });
  }
  template <class T>
  void fetch(const Buffer& from, std::vector<T>& to) {
    timed(Phase::from_device, [&] { device_.read(from.get(), 0, to.size() * sizeof(T), to.data()); });
  }

  // Sets all arguments (buffers, values, Local) and enqueues. An empty local range leaves the choice to the driver.
  template <class... Args>
  void launch(const Kernel& kernel, const Range& global, const Range& local, const Args&... args) {
    timed(Phase::kernels, [&] {
      cl_uint index = 0;
      (set_argument(kernel.get(), index++, args), ...);
      cl_event done = nullptr;
      check(clEnqueueNDRangeKernel(queue(), kernel.get(), global.dimensions(), nullptr, global.data(), local.data(), 0,
                                   nullptr, counts_kernels_ ? &done : nullptr),
            "clEnqueueNDRangeKernel");
      if (counts_kernels_) Beats::count(done);
    });
  }
  void finish() {
    timed(Phase::kernels, [&] { device_.finish(); });
  }

  // Launches have events from now on, for Beats.
  void count_kernels() { counts_kernels_ = true; }

  cl_context context() const { return device_.context(); }
  cl_command_queue queue() const { return device_.queue(); }
  cl_device_id device() const { return device_.id(); }
  bool is_cpu() const { return device_.is_cpu(); }
  bool has_images() const;
  size_t max_group_size() const;
  std::string name() const { return device_.text(CL_DEVICE_NAME); }

  double seconds(Phase phase) const { return seconds_[static_cast<size_t>(phase)]; }

  // A figure of the workload's own, such as frames per second, for its JSON line.
  void report(const std::string& name, double value) { reported_[name] = value; }
  const std::map<std::string, double>& reported() const { return reported_; }

  // The buffers that were made here and are still there, for the study of dirty pages.
  struct Made {
    cl_mem buffer;  // null: released
    size_t bytes;
  };
  const std::vector<Made>& buffers() const { return buffers_; }

 private:
  template <class T>
  static void set_argument(cl_kernel kernel, cl_uint index, const T& value) {
    check(clSetKernelArg(kernel, index, sizeof value, &value), "clSetKernelArg");
  }
  static void set_argument(cl_kernel kernel, cl_uint index, const Buffer& buffer) {
    cl_mem handle = buffer.get();
    check(clSetKernelArg(kernel, index, sizeof handle, &handle), "clSetKernelArg");
  }
  static void set_argument(cl_kernel kernel, cl_uint index, const Local& local) {
    check(clSetKernelArg(kernel, index, local.bytes, nullptr), "clSetKernelArg");
  }

  std::array<double, kPhaseNames.size()> seconds_{};
  bench::Device device_;
  std::vector<Made> buffers_;
  std::map<std::string, double> reported_;
  bool counts_kernels_ = false;
};

}  // namespace workload
