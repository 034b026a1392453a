#include "cases.hpp"

#include <chrono>
#include <string_view>

#include "launch_cases.hpp"
#include "transfer_cases.hpp"

namespace bench {
namespace {

template <class State>
OpenCase opened(size_t calls, size_t bytes, std::shared_ptr<State> state) {
  return {calls, bytes, [state] { state->prepare(); }, [state] { state->run(); }, [state] { state->verify(); }};
}

template <class State, size_t calls>
OpenCase open_calls(const Device& device, const Sizes&) {
  return opened(calls, 0, std::make_shared<State>(device, calls));
}

OpenCase open_small_maps(const Device& device, const Sizes&) {
  return opened(400, 0, std::make_shared<Maps>(device, 400, 64 * kKiB, CL_MEM_READ_WRITE));
}

template <size_t size, cl_mem_flags flags>
OpenCase open_large_maps(const Device& device, const Sizes& sizes) {
  return opened(sizes.large_maps, 0, std::make_shared<Maps>(device, sizes.large_maps, size, flags));
}

OpenCase open_copy(const Device& device, const Sizes&) {
  return opened(1, DeviceCopy::kSize, std::make_shared<DeviceCopy>(device));
}

OpenCase open_writes(const Device& device, const Sizes&) {
  return opened(1, Writes::kCalls * Writes::kSize, std::make_shared<Writes>(device));
}

OpenCase open_saxpy(const Device& device, const Sizes&) { return opened(1, 0, std::make_shared<Saxpy>(device)); }

template <class State, HostMemory memory>
OpenCase open_bulk(const Device& device, const Sizes& sizes) {
  return opened(1, sizes.bulk, std::make_shared<State>(device, sizes.bulk, memory));
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"set_arg", "ns", "clSetKernelArg with a changed value", open_calls<SetArgument, 50000>},
      {"launch_pipelined", "us", "launch, pipelined (1000, then clFinish)", open_calls<PipelinedLaunches, 4 * kBatch>},
      {"launch_3_args", "us", "3 changed arguments and launch, pipelined", open_calls<ChangedArguments, 4 * kBatch>},
      {"launch_synced", "us", "launch and clFinish", open_calls<SyncedLaunches, 200>},
      {"launch_event", "us", "launch with event and its release, pipelined",
       open_calls<LaunchesWithEvents, 4 * kBatch>},
      {"event_chain", "us", "launch that waits for the event of the one before", open_calls<EventChain, kBatch>},
      {"event_info", "ns", "clGetEventInfo of a complete event", open_calls<EventInfo, 50000>},
      {"read_4k", "us", "blocking read of 4 KiB", open_calls<SmallReads, 400>},
      {"write_4k", "us", "blocking write of 4 KiB", open_calls<SmallWrites, 400>},
      {"write_1m", "GB/s", "blocking writes of 1 MiB", open_writes},
      {"saxpy", "us", "200 times: write 1 MiB, launch, read 1 MiB", open_saxpy},
      {"round_trip", "us", "clCreateSampler and its release, a round trip", open_calls<RoundTrips, 200>},
      {"map_64k", "us", "map, unmap of 64 KiB", open_small_maps},
      {"map_16m", "us", "map, unmap of 16 MiB", open_large_maps<16 * kMiB, CL_MEM_READ_WRITE>},
      {"map_use_host_ptr", "us", "map, unmap of a 64 MiB USE_HOST_PTR buffer",
       open_large_maps<64 * kMiB, CL_MEM_USE_HOST_PTR>},
      {"create_buffer", "us", "clCreateBuffer of 64 KiB and its release", open_calls<Creations, 1000>},
      {"build", "us", "program of two kernels from source, built and released", open_calls<Builds, 4>},
      {"copy_256m", "GB/s", "copy of 256 MiB on the device", open_copy},
      {"write_bulk", "GB/s", "blocking write from ordinary memory", open_bulk<BulkWrite, HostMemory::ordinary>},
      {"read_bulk", "GB/s", "blocking read into ordinary memory", open_bulk<BulkRead, HostMemory::ordinary>},
      {"write_pinned", "GB/s", "blocking write from a mapped ALLOC_HOST_PTR buffer",
       open_bulk<BulkWrite, HostMemory::pinned>},
      {"read_pinned", "GB/s", "blocking read into a mapped ALLOC_HOST_PTR buffer",
       open_bulk<BulkRead, HostMemory::pinned>},
  };
  return all;
}

double time_run(const OpenCase& open_case) {
  open_case.prepare();
  const auto start = std::chrono::steady_clock::now();
  open_case.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double value_of(const Case& which, const OpenCase& open_case, double seconds) {
  const std::string_view unit = which.unit;
  if (unit == "GB/s") return static_cast<double>(open_case.bytes) / seconds / 1e9;
  return seconds / static_cast<double>(open_case.calls) * (unit == "ns" ? 1e9 : 1e6);
}

}  // namespace bench
