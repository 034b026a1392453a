#include "frame/frame.hpp"

#include <algorithm>

namespace workload {
namespace {

template <class T>
T fact(cl_device_id device, cl_device_info query) {
  T value{};
  check(clGetDeviceInfo(device, query, sizeof value, &value, nullptr), "clGetDeviceInfo");
  return value;
}

}  // namespace

Frame::Frame(const bench::Choice& choice)
    : device_{[&] {
        const Timer timer{seconds_[static_cast<size_t>(Phase::init)]};
        return bench::Device{choice};
      }()} {}

void Frame::build(const char* source, const std::string& options) {
  timed(Phase::build, [&] { device_.build(source, options); });
}

Kernel Frame::kernel(const char* name) {
  return timed(Phase::build, [&] { return device_.kernel(name); });
}

Buffer Frame::buffer(size_t bytes, cl_mem_flags flags, void* host) {
  auto made = timed(Phase::allocate, [&] { return device_.buffer(bytes, flags, host); });
  const auto place = std::find_if(buffers_.begin(), buffers_.end(),
                                  [&](const Made& other) { return other.buffer == nullptr && other.bytes == bytes; });
  if (place == buffers_.end())
    buffers_.push_back({made.get(), bytes});
  else
    place->buffer = made.get();
  return made;
}

void Frame::release(Buffer& buffer) {
  for (Made& made : buffers_) {
    if (made.buffer == buffer.get()) made.buffer = nullptr;
  }
  timed(Phase::close, [&] { buffer.reset(); });
}

bool Frame::has_images() const { return fact<cl_bool>(device(), CL_DEVICE_IMAGE_SUPPORT) == CL_TRUE; }
size_t Frame::max_group_size() const { return fact<size_t>(device(), CL_DEVICE_MAX_WORK_GROUP_SIZE); }

}  // namespace workload
