#include "api/describe.hpp"

#include "api/answer.hpp"
#include "api/check.hpp"
#include "api/platforms.hpp"
#include "base/log.hpp"
#include "objects/features.hpp"

namespace grus::api {

namespace {

cl_int describe(cl_device_id handle, std::size_t size, void* text, std::size_t* size_ret) {
  const Device* device = live<Device>(handle);
  if (!device) return CL_INVALID_DEVICE;
  std::string hidden;
  for (const HiddenFeature& feature : hidden_features()) {
    hidden += fmt::format("{}{{\"what\":\"{}\",\"why\":\"{}\"}}", hidden.empty() ? "" : ",", feature.what, feature.why);
  }
  const DriverDescription driver = executor_of(*device).describe_driver(device->home.index);
  const std::string json = fmt::format(
      "{{\"driver\":{{\"library\":\"{}\",\"unload\":\"{}\"}},"
      "\"memory\":\"{}\","
      "\"movable\":[{{\"what\":\"buffers, sub-buffers and images\"}},{{\"what\":\"programs from source, IL and Grus's "
      "own binaries\"}},"
      "{{\"what\":\"kernels with their arguments, samplers\"}},{{\"what\":\"queues, events, user events and "
      "callbacks\"}},"
      "{{\"what\":\"mapped pointers and host-pointer buffers\"}}],"
      "\"not_offered\":[{}]}}",
      driver.file, driver.unload, device->limits.shares_host_memory ? "shared with host" : "own", hidden);
  return answer(Room{size, text, size_ret}, json);
}

}  // namespace

cl_int CL_API_CALL describe_device(cl_device_id device, std::size_t size, void* text, std::size_t* size_ret) noexcept {
  try {
    return describe(device, size, text, size_ret);
  } catch (...) {
    return CL_OUT_OF_HOST_MEMORY;
  }
}

}  // namespace grus::api
