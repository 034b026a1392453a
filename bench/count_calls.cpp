// count_calls: makes one of the hottest OpenCL calls some hundred times while callgrind counts only the instructions of
// the calls themselves. Run by instructions.py, natively and through Grus.
#include <valgrind/callgrind.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <vector>

#include "opencl.hpp"

namespace {

using bench::check;

constexpr size_t kSmall = 4096;
constexpr size_t kMapped = size_t{64} * 1024;

struct Call {
  const char* name;
  std::function<void(uint32_t)> before;  // not counted
  std::function<void(uint32_t)> call;    // counted
  std::function<void(uint32_t)> after;   // not counted
};

void nothing(uint32_t) {}

// Everything the calls use.
class Calls {
 public:
  explicit Calls(const bench::Device& device)
      : device_(device),
        kernel_(device.kernel("store")),
        targets_{device.buffer(kMapped), device.buffer(kMapped)},
        host_(kSmall) {
    set_all(0);
  }

  std::vector<Call> all() {
    const auto drain = [this](uint32_t i) { drain_sometimes(i); };
    return {
        {"set_arg_value", nothing, [this](uint32_t i) { set_value(2, i); }, nothing},
        {"set_arg_buffer", nothing, [this](uint32_t i) { set_buffer(i); }, nothing},
        {"launch", nothing, [this](uint32_t) { device_.launch(kernel_.get()); }, drain},
        {"launch_3_args", nothing, [this](uint32_t i) { set_all(i), device_.launch(kernel_.get()); }, drain},
        {"launch_after_3_args", [this](uint32_t i) { set_all(i); }, [this](uint32_t) { device_.launch(kernel_.get()); },
         drain},
        {"launch_event", nothing, [this](uint32_t) { launch_with_event(); }, drain},
        {"event_info", [this](uint32_t) { keep_event(); }, [this](uint32_t) { event_info(); }, nothing},
        {"read_4k", nothing, [this](uint32_t) { device_.read(targets_[0].get(), 0, kSmall, host_.data()); }, nothing},
        {"write_4k", nothing, [this](uint32_t) { device_.write(targets_[0].get(), 0, kSmall, host_.data()); }, nothing},
        {"map", nothing, [this](uint32_t) { map(); }, [this](uint32_t) { unmap(), device_.finish(); }},
        {"unmap", [this](uint32_t) { map(); }, [this](uint32_t) { unmap(); }, [this](uint32_t) { device_.finish(); }},
        {"create_buffer", nothing, [this](uint32_t) { device_.buffer(kMapped); }, nothing},
        {"finish_empty", nothing, [this](uint32_t) { device_.finish(); }, nothing},
        {"work_group_info", nothing, [this](uint32_t) { work_group_info(); }, nothing},
    };
  }

 private:
  // The queue stays short, so that what it costs to have a long one isn't counted as the call's.
  void drain_sometimes(uint32_t i) const {
    if (i % 64 == 63) device_.finish();
  }
  void set_value(cl_uint index, uint32_t value) const {
    check(clSetKernelArg(kernel_.get(), index, sizeof value, &value), "clSetKernelArg");
  }
  void set_buffer(uint32_t i) const {
    cl_mem buffer = targets_[i % 2].get();
    check(clSetKernelArg(kernel_.get(), 0, sizeof(cl_mem), &buffer), "clSetKernelArg");
  }
  void set_all(uint32_t i) const {
    set_buffer(i);
    set_value(1, i % 1024);
    set_value(2, i);
  }
  void launch_with_event() const {
    cl_event event = nullptr;
    device_.launch(kernel_.get(), &event);
    check(clReleaseEvent(event), "clReleaseEvent");
  }
  void keep_event() {
    if (event_) return;
    cl_event event = nullptr;
    device_.launch(kernel_.get(), &event);
    event_.reset(event);
    device_.finish();
  }
  void event_info() const {
    cl_int status = CL_QUEUED;
    check(clGetEventInfo(event_.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr),
          "clGetEventInfo");
  }
  void map() { mapped_ = device_.map(targets_[0].get(), kMapped, CL_MAP_READ | CL_MAP_WRITE); }
  void unmap() const { device_.unmap(targets_[0].get(), mapped_); }
  void work_group_info() const {
    size_t size = 0;
    check(clGetKernelWorkGroupInfo(kernel_.get(), device_.id(), CL_KERNEL_WORK_GROUP_SIZE, sizeof size, &size, nullptr),
          "clGetKernelWorkGroupInfo");
  }

  const bench::Device& device_;
  bench::Kernel kernel_;
  std::array<bench::Buffer, 2> targets_;
  std::vector<char> host_;
  bench::Event event_;
  void* mapped_ = nullptr;
};

// The calling thread counts only between the two toggles; other threads count all the time.
void make(const Call& call, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; ++i) {
    call.before(i);
    CALLGRIND_TOGGLE_COLLECT;
    call.call(i);
    CALLGRIND_TOGGLE_COLLECT;
    call.after(i);
  }
}

// Warm calls first; then blocks, dumped one by one.
void count(const bench::Device& device, const Call& call, uint32_t calls, uint32_t blocks) {
  make(call, 0, calls);
  device.finish();
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_TOGGLE_COLLECT;  // off for this thread
  make(call, 0, calls);
  device.finish();
  CALLGRIND_ZERO_STATS;
  for (uint32_t block = 0; block < blocks; ++block) {
    make(call, 0, calls);
    device.finish();
    CALLGRIND_DUMP_STATS_AT(call.name);
  }
}

int run(int argc, char** argv) {
  bench::Choice choice;
  std::string name;
  uint32_t calls = 256;
  uint32_t blocks = 4;
  CLI::App app{"Makes OpenCL calls for callgrind to count. Run it with instructions.py."};
  app.add_option("--platform", choice.platform, "part of the platform's name");
  app.add_option("--device", choice.device, "part of the device's name");
  app.add_option("--call", name, "the call to make; without it they are listed");
  app.add_option("--calls", calls, "calls in a block")->capture_default_str();
  app.add_option("--blocks", blocks, "blocks")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  bench::Device device{choice};
  device.build(bench::kCountingKernels);
  std::cout << device.platform_text(CL_PLATFORM_NAME) << '\n'
            << device.text(CL_DEVICE_NAME) << '\n'
            << device.text(CL_DRIVER_VERSION) << std::endl;
  Calls made{device};
  bool found = false;
  for (const auto& call : made.all()) {
    if (name.empty()) std::cout << call.name << '\n';
    if (call.name != name) continue;
    count(device, call, calls, blocks);
    found = true;
  }
  if (!found && !name.empty()) throw bench::Failure("no call is called '" + name + "'");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "count_calls: %s\n", failure.what());
    return 1;
  }
}
