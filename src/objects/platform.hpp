// A vendor's platform, mirrored.
#pragma once

#include <string>
#include <vector>

#include "objects/object.hpp"

namespace grus {

class Device;

class Platform : public Object {
 public:
  std::string name;
  std::string vendor;
  std::string version;
  std::string profile;
  std::string extensions;  // those of the vendor's that Grus offers
  std::vector<cl_name_version> versioned_extensions;
  cl_ulong host_timer_resolution = 0;
  std::uint32_t index = 0;  // which of the executor's platforms it mirrors

  std::once_flag devices_found;
  std::vector<Device*> devices;  // root devices, filled on first use
};

}  // namespace grus
