// Cases about kernel arguments, launches and events.
#pragma once

#include <array>

#include "case_parts.hpp"

namespace bench {

struct Tick : Base {
  size_t calls;
  Kernel kernel;
  Buffer count;
  uint32_t expected = 0;

  Tick(const Device& on, size_t calls_per_run)
      : Base(on), calls(calls_per_run), kernel(on.kernel("tick")), count(on.buffer(sizeof expected)) {
    device.write(count.get(), 0, sizeof expected, &expected);
    cl_mem buffer = count.get();
    check(clSetKernelArg(kernel.get(), 0, sizeof(cl_mem), &buffer), "clSetKernelArg");
  }
  void prepare() { expected += static_cast<uint32_t>(calls); }
  void verify() const {
    uint32_t seen = 0;
    device.read(count.get(), 0, sizeof seen, &seen);
    require(seen == expected, "launches were lost or repeated");
  }
};

// Launches between two clFinish. A run has several such batches: one alone is too short to time.
constexpr uint32_t kBatch = 1000;

struct PipelinedLaunches : Tick {
  using Tick::Tick;
  void run() {
    for (size_t i = 0; i < calls; ++i) {
      device.launch(kernel.get());
      if (i % kBatch == kBatch - 1) device.finish();
    }
  }
};

struct SyncedLaunches : Tick {
  using Tick::Tick;
  void run() {
    for (size_t i = 0; i < calls; ++i) {
      device.launch(kernel.get());
      device.finish();
    }
  }
};

struct LaunchesWithEvents : Tick {
  using Tick::Tick;
  void run() {
    for (size_t i = 0; i < calls; ++i) {
      cl_event event = nullptr;
      device.launch(kernel.get(), &event);
      check(clReleaseEvent(event), "clReleaseEvent");
      if (i % kBatch == kBatch - 1) device.finish();
    }
  }
};

// Each launch waits for the event of the one before it.
struct EventChain : Tick {
  using Tick::Tick;
  void run() {
    Event last;
    for (size_t i = 0; i < calls; ++i) {
      cl_event before = last.get();
      cl_event event = nullptr;
      const size_t one = 1;
      check(clEnqueueNDRangeKernel(device.queue(), kernel.get(), 1, nullptr, &one, nullptr, before ? 1 : 0,
                                   before ? &before : nullptr, &event),
            "clEnqueueNDRangeKernel");
      last.reset(event);
    }
    device.finish();
  }
};

// A program made from source, built and released; the driver's own cache is as the user has it.
struct Builds : Base {
  size_t calls;
  Builds(const Device& on, size_t calls_per_run) : Base(on), calls(calls_per_run) {}
  void run() const {
    for (size_t i = 0; i < calls; ++i) {
      cl_int code = CL_SUCCESS;
      const char* source = kCountingKernels;
      const Program program{clCreateProgramWithSource(device.context(), 1, &source, nullptr, &code)};
      check(code, "clCreateProgramWithSource");
      check(clBuildProgram(program.get(), 0, nullptr, "", nullptr, nullptr), "clBuildProgram");
    }
  }
};

struct EventInfo : Tick {
  Event event;
  explicit EventInfo(const Device& on, size_t calls_per_run) : Tick(on, calls_per_run) {
    cl_event launched = nullptr;
    device.launch(kernel.get(), &launched);
    event.reset(launched);
    device.finish();
  }
  void prepare() {}
  void run() {
    for (size_t i = 0; i < calls; ++i) {
      cl_int status = CL_QUEUED;
      check(clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr),
            "clGetEventInfo");
      require(status == CL_COMPLETE, "an event is not complete after clFinish");
    }
  }
  void verify() {}
};

// Launch i stores salt+i at index i of one of two buffers, so each launch changes all three arguments.
struct ChangedArguments : Base {
  size_t calls;
  Kernel kernel;
  std::array<Buffer, 2> out;
  uint32_t salt = 0;

  ChangedArguments(const Device& on, size_t calls_per_run)
      : Base(on), calls(calls_per_run), kernel(on.kernel("store")), out{bytes(), bytes()} {}
  Buffer bytes() const { return device.buffer(calls * sizeof(uint32_t)); }

  void set(cl_uint index, size_t size, const void* value) const {
    check(clSetKernelArg(kernel.get(), index, size, value), "clSetKernelArg");
  }
  void set_all(uint32_t i) const {
    cl_mem buffer = out[i % 2].get();
    const uint32_t value = salt + i;
    set(0, sizeof(cl_mem), &buffer);
    set(1, sizeof i, &i);
    set(2, sizeof value, &value);
  }
  void prepare() { salt += 7919; }
  void run() const {
    for (uint32_t i = 0; i < calls; ++i) {
      set_all(i);
      device.launch(kernel.get());
      if (i % kBatch == kBatch - 1) device.finish();
    }
  }
  void verify() const {
    std::array<Words, 2> seen{Words(calls), Words(calls)};
    for (size_t b = 0; b < 2; ++b) device.read(out[b].get(), 0, calls * sizeof(uint32_t), seen[b].data());
    for (uint32_t i = 0; i < calls; ++i)
      require(seen[i % 2][i] == salt + i, "a launch took other arguments than its own");
  }
};

struct SetArgument : ChangedArguments {
  SetArgument(const Device& on, size_t calls_per_run) : ChangedArguments(on, calls_per_run) { set_all(0); }
  void run() const {
    for (uint32_t i = 0; i < calls; ++i) {
      const uint32_t value = salt + i;
      set(2, sizeof value, &value);
    }
  }
  void verify() const {
    device.launch(kernel.get());  // with the other two arguments as set_all(0) left them
    uint32_t seen = 0;
    device.read(out[0].get(), 0, sizeof seen, &seen);
    require(seen == salt + calls - 1, "the last clSetKernelArg did not count");
  }
};

}  // namespace bench
