// What `grus info` asks beyond OpenCL: what can be moved on a device, and what can't and why. As JSON.
#pragma once

#include <CL/cl.h>

#include <cstddef>

namespace grus::api {

cl_int CL_API_CALL describe_device(cl_device_id device, std::size_t size, void* text, std::size_t* size_ret) noexcept;

}  // namespace grus::api
