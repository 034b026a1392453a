#include "api/platforms.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "api/session.hpp"
#include "base/log.hpp"
#include "objects/features.hpp"

namespace grus::api {

namespace {

Platform* mirror(const PlatformDescription& vendor) {
  Platform* platform = slab<Platform>().create();
  platform->name = vendor.name;
  platform->vendor = vendor.vendor;
  platform->version = vendor.version;
  platform->profile = vendor.profile;
  platform->extensions = offered_extensions(vendor.extensions);
  platform->versioned_extensions = offered_extensions(vendor.versioned_extensions);
  platform->host_timer_resolution = vendor.host_timer_resolution;
  return platform;
}

// GRUS_PLATFORMS=one shows what equal platforms of several servers have as one platform's devices.
Platform* equal_one(const std::vector<Platform*>& platforms, const PlatformDescription& vendor) {
  const char* const wanted = std::getenv("GRUS_PLATFORMS");
  if (!wanted || std::string_view{wanted} != "one") return nullptr;
  const auto found = std::find_if(platforms.begin(), platforms.end(), [&](const Platform* platform) {
    return platform->name == vendor.name && platform->version == vendor.version;
  });
  return found == platforms.end() ? nullptr : *found;
}

}  // namespace

const std::vector<Platform*>& all_platforms() {
  static const std::vector<Platform*> platforms = [] {
    start_session();
    std::vector<Platform*> mirrored;
    for (Executor* const executor : starting_executors()) {
      std::uint32_t index = 0;
      for (const PlatformDescription& vendor : executor->platforms()) {
        Platform* platform = equal_one(mirrored, vendor);
        if (!platform) platform = mirrored.emplace_back(mirror(vendor));
        platform->below.push_back({executor, index++});
      }
    }
    return mirrored;
  }();
  return platforms;
}

// Loaders keep the platforms that they were given, across a fork too, so these are valid for the life of the process.
Platform* live_platform(cl_platform_id handle) {
  for (Platform* platform : all_platforms()) {
    if (reinterpret_cast<cl_platform_id>(platform) == handle) return platform;
  }
  return nullptr;
}

const std::vector<Device*>& devices_of(Platform& platform) {
  if (drivers_are_lost_by_fork()) {
    static const std::vector<Device*> none;
    return none;
  }
  std::call_once(platform.devices_found, [&] {
    for (const PlatformBelow& below : platform.below) {
      auto& executor = static_cast<Executor&>(*below.executor);
      const auto count = executor.device_count(below.index);
      if (!count)
        log::warn("devices", "{}: the driver can't list its devices (OpenCL error {})", platform.name, count.error());
      for (cl_uint index = 0; index < (count ? *count : 0); ++index) {
        Device* device = slab<Device>().create(&platform, below, nullptr);
        device->index = index;
        executor.name_device(below.index, index, device->id());
        fill_limits(*device);
        platform.devices.push_back(device);
      }
    }
  });
  return platform.devices;
}

Result<std::vector<Device*>> devices_of_type(Platform& platform, cl_device_type type) {
  constexpr cl_device_type kKnown = CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |
                                    CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM;
  if (type != CL_DEVICE_TYPE_ALL && (type == 0 || (type & ~kKnown))) return Failure{CL_INVALID_DEVICE_TYPE};
  std::vector<Device*> found;
  const auto& devices = devices_of(platform);
  for (Device* device : devices) {
    // Custom devices are only found by asking for them.
    const bool matches = type == CL_DEVICE_TYPE_ALL ? !(device->limits.type & CL_DEVICE_TYPE_CUSTOM)
                                                    : (device->limits.type & type & ~CL_DEVICE_TYPE_DEFAULT) != 0;
    if (matches) found.push_back(device);
  }
  if (found.empty() && type != CL_DEVICE_TYPE_ALL && (type & CL_DEVICE_TYPE_DEFAULT) && !devices.empty()) {
    const auto by_default = std::find_if(devices.begin(), devices.end(), [](const Device* device) {
      return device->limits.type & CL_DEVICE_TYPE_DEFAULT;
    });
    found.push_back(by_default == devices.end() ? devices.front() : *by_default);
  }
  if (found.empty()) return Failure{CL_DEVICE_NOT_FOUND};
  return found;
}

void fill_limits(Device& device) {
  DeviceLimits& limits = device.limits;
  const auto get = [&](cl_device_info query, auto otherwise) {
    const auto& bytes = told_of(device, query);
    return bytes && bytes->size() >= sizeof otherwise ? from_bytes<decltype(otherwise)>(*bytes) : otherwise;
  };
  const cl_device_type real_type = get(CL_DEVICE_TYPE, cl_device_type{CL_DEVICE_TYPE_DEFAULT});
  limits.type = presented_type() ? presented_type() | (real_type & CL_DEVICE_TYPE_DEFAULT) : real_type;
  limits.shares_host_memory = shares_host_memory(real_type, get(CL_DEVICE_HOST_UNIFIED_MEMORY, cl_bool{CL_FALSE}));
  limits.images = get(CL_DEVICE_IMAGE_SUPPORT, cl_bool{CL_FALSE});
  const auto& version = told_of(device, CL_DEVICE_VERSION);
  if (!version || std::sscanf(text_from_bytes(*version).c_str(), "OpenCL %u.%u", &limits.version_major,
                              &limits.version_minor) != 2) {
    limits.version_major = 1;
  }
  const cl_uint number = limits.version_major * 10 + limits.version_minor;
  limits.zero_sized_launches = number >= 21;
  limits.non_uniform_groups =
      number >= 30 ? get(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, cl_bool{CL_FALSE}) : number >= 20;
  limits.max_dimensions = get(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, cl_uint{3});
  limits.max_items = get(CL_DEVICE_MAX_WORK_ITEM_SIZES, std::array<std::size_t, 3>{1, 1, 1});
  limits.max_group_size = get(CL_DEVICE_MAX_WORK_GROUP_SIZE, std::size_t{1});
  limits.max_allocation = get(CL_DEVICE_MAX_MEM_ALLOC_SIZE, cl_ulong{0});
  limits.local_memory = get(CL_DEVICE_LOCAL_MEM_SIZE, cl_ulong{0});
  limits.base_align_bytes = get(CL_DEVICE_MEM_BASE_ADDR_ALIGN, cl_uint{1024}) / 8;
  limits.image2d_max = {get(CL_DEVICE_IMAGE2D_MAX_WIDTH, std::size_t{0}),
                        get(CL_DEVICE_IMAGE2D_MAX_HEIGHT, std::size_t{0})};
  limits.image3d_max = {get(CL_DEVICE_IMAGE3D_MAX_WIDTH, std::size_t{0}),
                        get(CL_DEVICE_IMAGE3D_MAX_HEIGHT, std::size_t{0}),
                        get(CL_DEVICE_IMAGE3D_MAX_DEPTH, std::size_t{0})};
  limits.image_array_max = get(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, std::size_t{0});
  limits.image_buffer_max = get(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, std::size_t{0});
  limits.queue_properties = get(CL_DEVICE_QUEUE_PROPERTIES, cl_command_queue_properties{0});
  limits.execution = get(CL_DEVICE_EXECUTION_CAPABILITIES, cl_device_exec_capabilities{CL_EXEC_KERNEL});
}

}  // namespace grus::api
