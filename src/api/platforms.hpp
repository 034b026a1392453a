// The platforms and root devices of this process, mirrored from the starting executor.
#pragma once

#include <vector>

#include "command/executor.hpp"

namespace grus::api {

const std::vector<Platform*>& all_platforms();
Platform* live_platform(cl_platform_id handle);
// The platform's root devices, found on first use; empty in a forked child of a process that had used OpenCL.
const std::vector<Device*>& devices_of(Platform& platform);
// Devices of a type, as clGetDeviceIDs understands types; the error is CL_INVALID_DEVICE_TYPE or CL_DEVICE_NOT_FOUND.
Result<std::vector<Device*>> devices_of_type(Platform& platform, cl_device_type type);
void fill_limits(Device& device);

}  // namespace grus::api
