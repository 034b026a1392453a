// A vendor's platform, mirrored.
#pragma once

#include <string>
#include <vector>

#include "objects/below.hpp"
#include "objects/object.hpp"

namespace grus {

class Device;

// One of an executor's platforms.
struct PlatformBelow {
  BelowSeam* executor = nullptr;
  std::uint32_t index = 0;
};

class Platform : public Object {
 public:
  std::string name;
  std::string vendor;
  std::string version;
  std::string profile;
  std::string extensions;  // those of the vendor's that Grus offers
  std::vector<cl_name_version> versioned_extensions;
  cl_ulong host_timer_resolution = 0;
  std::vector<PlatformBelow> below;  // what it mirrors: one, or all if the user wants one platform

  std::once_flag devices_found;
  std::vector<Device*> devices;  // root devices, filled on first use
};

}  // namespace grus
