// A device as the program sees it. Root devices live as long as the process; sub-devices are counted.
#pragma once

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "objects/below.hpp"
#include "objects/facts.hpp"
#include "objects/object.hpp"
#include "objects/platform.hpp"

namespace grus {

// GRUS_MEMORY=own treats every device as if its memory were not the host's, so that tests without a GPU go that way.
inline bool treats_memory_as_own() {
  const char* const memory = std::getenv("GRUS_MEMORY");
  return memory && std::string_view{memory} == "own";
}

// Whether a device works on the host's own memory.
inline bool shares_host_memory(cl_device_type type, cl_bool is_unified) {
  return !treats_memory_as_own() && ((type & CL_DEVICE_TYPE_CPU) || is_unified);
}

// The facts that checks on the path of a call need, parsed once.
struct DeviceLimits {
  cl_device_type type = 0;
  bool shares_host_memory = false;
  bool images = false;
  bool non_uniform_groups = false;
  bool zero_sized_launches = false;  // OpenCL 2.1 and later
  cl_uint version_major = 0;
  cl_uint version_minor = 0;
  cl_uint max_dimensions = 3;
  std::array<std::size_t, 3> max_items{};
  std::size_t max_group_size = 0;
  cl_ulong max_allocation = 0;
  cl_ulong local_memory = 0;
  cl_uint base_align_bytes = 0;
  std::array<std::size_t, 2> image2d_max{};
  std::array<std::size_t, 3> image3d_max{};
  std::size_t image_array_max = 0;
  std::size_t image_buffer_max = 0;
  cl_command_queue_properties queue_properties = 0;
  cl_device_exec_capabilities execution = 0;
};

class Device : public Object {
 public:
  Device(Platform* platform_, const PlatformBelow& home_, Device* parent_)
      : platform{platform_}, home{home_}, parent{parent_} {}
  ~Device() {
    if (is_named) home.executor->free(ObjectType::device, id());
  }

  Platform* const platform;
  PlatformBelow home;  // changed by moves, with the gate closed
  cl_uint index = 0;   // among that platform's; changed with it
  const Ref<Device> parent;
  bool is_named = false;  // below the seam, and freed there: sub-devices
  std::vector<cl_device_partition_property> partition;
  std::size_t number = 0;  // among those that the partition made
  DeviceLimits limits;
  FactCache facts;
  std::atomic<bool> runs_native_kernels{false};  // the program has enqueued one
};

}  // namespace grus
