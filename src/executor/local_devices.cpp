// LocalExecutor: platforms, devices, contexts and queues.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "command/callbacks.hpp"
#include "executor/event_call.hpp"
#include "executor/local.hpp"
#include "executor/query.hpp"

namespace grus {
namespace {

constexpr std::chrono::seconds kPatience{2};  // with a driver that doesn't tell when it is idle

int version_of(const std::string& text) {  // "OpenCL 3.0 …"
  int major = 1;
  int minor = 0;
  if (std::sscanf(text.c_str(), "OpenCL %d.%d", &major, &minor) != 2) return 100;
  return major * 100 + minor * 10;
}

}  // namespace

std::vector<std::shared_ptr<Vendor>> LocalExecutor::load_vendors() {
  std::vector<std::shared_ptr<Vendor>> vendors;
  for (const VendorLibrary& library : find_vendor_libraries(vendors_path())) {
    if (auto vendor = Vendor::share(library)) vendors.push_back(std::move(vendor));
  }
  return vendors;
}

std::vector<LocalExecutor::VendorPlatform> LocalExecutor::platforms_of(
    std::span<const std::shared_ptr<Vendor>> vendors) {
  std::vector<VendorPlatform> platforms;
  for (const auto& vendor : vendors) {
    for (cl_platform_id handle : vendor->platforms()) {
      const auto text = [&](cl_platform_info query) {
        const auto bytes =
            ask([&](auto... rest) { return functions(handle).clGetPlatformInfo(handle, query, rest...); });
        return bytes ? text_from_bytes(*bytes) : std::string{};
      };
      VendorPlatform platform;
      platform.handle = handle;
      platform.driver = {vendor->path(), vendor->describe_unloading()};
      platform.description = {text(CL_PLATFORM_NAME),
                              text(CL_PLATFORM_VENDOR),
                              text(CL_PLATFORM_VERSION),
                              text(CL_PLATFORM_PROFILE),
                              text(CL_PLATFORM_EXTENSIONS),
                              {},
                              0};
      platform.version = version_of(platform.description.version);
      if (platform.version >= 210) {
        const auto resolution = ask([&](auto... rest) {
          return functions(handle).clGetPlatformInfo(handle, CL_PLATFORM_HOST_TIMER_RESOLUTION, rest...);
        });
        if (resolution) platform.description.host_timer_resolution = from_bytes<cl_ulong>(*resolution);
      }
      if (platform.version >= 300) {
        const auto bytes = ask([&](auto... rest) {
          return functions(handle).clGetPlatformInfo(handle, CL_PLATFORM_EXTENSIONS_WITH_VERSION, rest...);
        });
        if (bytes) platform.description.versioned_extensions = list_from_bytes<cl_name_version>(*bytes);
      }
      platforms.push_back(std::move(platform));
    }
  }
  return platforms;
}

LocalExecutor::LocalExecutor() : vendors_{load_vendors()}, platforms_{platforms_of(vendors_)} {}

LocalExecutor::~LocalExecutor() { finish_leaving(); }

bool LocalExecutor::let_drivers_go() {
  finish_leaving();
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (*askers_ != 0) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  watch_.finish();  // it has events of the drivers
  const std::lock_guard lock{load_mutex_};
  for (VendorPlatform& platform : platforms_) {
    platform.handle = nullptr;
    platform.devices.clear();
  }
  in_place_.clear();
  vendors_.clear();
  return true;
}

// Only what had never been asked about its devices is asked now: those that it has named are elsewhere.
void LocalExecutor::load_again() {
  const std::lock_guard lock{load_mutex_};
  if (!vendors_.empty()) return;
  vendors_ = load_vendors();
  const auto again = platforms_of(vendors_);
  for (std::size_t next = 0; next < std::min(again.size(), platforms_.size()); ++next)
    platforms_[next].handle = again[next].handle;
}

std::vector<PlatformDescription> LocalExecutor::platforms() {
  std::vector<PlatformDescription> descriptions;
  for (const auto& platform : platforms_) descriptions.push_back(platform.description);
  return descriptions;
}

Result<cl_uint> LocalExecutor::device_count(std::uint32_t index) {
  VendorPlatform& platform = platforms_[index];
  if (!platform.handle) load_again();
  if (!platform.handle) return Failure{CL_DEVICE_NOT_AVAILABLE};
  cl_uint count = 0;
  const auto& call = functions(platform.handle);
  const cl_int code = call.clGetDeviceIDs(platform.handle, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
  if (code == CL_DEVICE_NOT_FOUND) return cl_uint{0};
  if (code != CL_SUCCESS) return Failure{code};
  platform.devices.resize(count);
  if (count != 0) call.clGetDeviceIDs(platform.handle, CL_DEVICE_TYPE_ALL, count, platform.devices.data(), nullptr);
  return count;
}

void LocalExecutor::name_device(std::uint32_t platform, cl_uint index, ObjectId id) {
  devices_.set(id, platforms_[platform].devices[index]);
}

Result<Bytes> LocalExecutor::device_info(ObjectId id, cl_device_info query) {
  cl_device_id device = devices_[id];
  return ask([&](auto... rest) { return functions(device).clGetDeviceInfo(device, query, rest...); });
}

Result<cl_uint> LocalExecutor::count_sub_devices(ObjectId id, const cl_device_partition_property* how) {
  cl_device_id parent = devices_[id];
  cl_uint count = 0;
  const cl_int code = functions(parent).clCreateSubDevices(parent, how, 0, nullptr, &count);
  if (code != CL_SUCCESS) return Failure{code};
  return count;
}

cl_int LocalExecutor::create_sub_devices(ObjectId id, const cl_device_partition_property* how,
                                         std::span<const ObjectId> ids) {
  cl_device_id parent = devices_[id];
  std::vector<cl_device_id> made(ids.size());
  const auto count = static_cast<cl_uint>(ids.size());
  const cl_int code = functions(parent).clCreateSubDevices(parent, how, count, made.data(), nullptr);
  if (code != CL_SUCCESS) return code;
  for (std::size_t next = 0; next < ids.size(); ++next) devices_.set(ids[next], made[next]);
  return CL_SUCCESS;
}

Result<std::array<cl_ulong, 2>> LocalExecutor::device_and_host_timer(ObjectId id) {
  cl_device_id device = devices_[id];
  std::array<cl_ulong, 2> times{};
  const auto function = functions(device).clGetDeviceAndHostTimer;
  if (!function) return Failure{CL_INVALID_OPERATION};
  const cl_int code = function(device, &times[0], &times[1]);
  if (code != CL_SUCCESS) return Failure{code};
  return times;
}

cl_int LocalExecutor::unload_compiler(std::uint32_t platform) {
  cl_platform_id handle = platforms_[platform].handle;
  if (!handle || platforms_[platform].version < 120) return CL_SUCCESS;
  return functions(handle).clUnloadPlatformCompiler(handle);
}

DriverDescription LocalExecutor::describe_driver(std::uint32_t platform) { return platforms_[platform].driver; }

std::vector<cl_device_id> LocalExecutor::handles_of(std::span<const ObjectId> ids) const {
  std::vector<cl_device_id> handles;
  handles.reserve(ids.size());
  for (const ObjectId id : ids) handles.push_back(devices_[id]);
  return handles;
}

Result<std::shared_ptr<LocalExecutor::VendorContext>> LocalExecutor::make_context(
    const VendorPlatform& platform, std::span<const cl_device_id> devices,
    std::span<const cl_context_properties> properties, Listens listens) {
  std::vector<cl_context_properties> list{CL_CONTEXT_PLATFORM,
                                          reinterpret_cast<cl_context_properties>(platform.handle)};
  list.insert(list.end(), properties.begin(), properties.end());
  list.push_back(0);
  auto context = std::make_shared<VendorContext>();
  context->version = platform.version;
  const auto on_error = [](const char* text, const void* data, std::size_t size, void* owner) {
    if (!owner) {  // Oclgrind hands the user's data over in the place of its own
      owner = const_cast<void*>(data);
      data = nullptr;
      size = 0;
    }
    if (const auto& notice = static_cast<VendorContext*>(owner)->notice) notice(text, data, size);
  };
  cl_int code = CL_SUCCESS;
  const bool has_callback = listens == Listens::yes;
  context->handle =
      functions(devices[0])
          .clCreateContext(list.data(), static_cast<cl_uint>(devices.size()), devices.data(),
                           has_callback ? +on_error : nullptr, has_callback ? context.get() : nullptr, &code);
  if (!context->handle) return Failure{code};
  return context;
}

void LocalExecutor::make_context_ready(std::uint32_t platform, cl_uint index) {
  cl_device_id device = platforms_[platform].devices[index];
  if (auto made = make_context(platforms_[platform], {&device, 1}, {}, Listens::yes))
    ready_contexts_[device] = std::move(*made);
}

// The others would only take room.
std::shared_ptr<LocalExecutor::VendorContext> LocalExecutor::take_ready_context(std::span<const cl_device_id> devices) {
  if (ready_contexts_.empty()) return nullptr;
  std::shared_ptr<VendorContext> taken;
  if (devices.size() == 1) {
    if (const auto found = ready_contexts_.extract(devices[0]); !found.empty()) taken = found.mapped();
  }
  const auto give_up = [rest = std::exchange(ready_contexts_, {})] {
    for (const auto& [device, context] : rest) functions(context->handle).clReleaseContext(context->handle);
  };
  start_thread("grus-contexts", give_up).detach();
  return taken;
}

cl_int LocalExecutor::create_context(ObjectId id, std::span<const ObjectId> devices, std::uint32_t platform,
                                     std::span<const cl_context_properties> properties, ErrorNotice notice) {
  const auto handles = handles_of(devices);
  auto context = properties.empty() ? take_ready_context(handles) : nullptr;
  if (!context) {
    auto made = make_context(platforms_[platform], handles, properties, notice ? Listens::yes : Listens::no);
    if (!made) return made.error();
    context = std::move(*made);
  }
  context->notice = std::move(notice);
  auto owner = std::make_unique<std::shared_ptr<VendorContext>>(std::move(context));
  contexts_.set(id, owner.get());
  (void)owner.release();  // the table's now
  return CL_SUCCESS;
}

cl_int LocalExecutor::create_queue(ObjectId id, ObjectId context_id, ObjectId device_id,
                                   std::span<const cl_queue_properties> properties) {
  const bool is_own = properties.size() >= 2 && properties[0] == kOwnQueue;
  if (is_own) properties = properties.subspan(2);
  const VendorContext& context = context_of(context_id);
  cl_device_id device = devices_[device_id];
  const auto& call = functions(context.handle);
  cl_int code = CL_SUCCESS;
  cl_command_queue handle = nullptr;
  // Through the older call where it says as much: a vendor before 2.0 has no other.
  const bool plain = properties.empty() || (properties.size() == 2 && properties[0] == CL_QUEUE_PROPERTIES);
  if (plain && (context.version < 200 || properties.empty() || !(properties[1] & CL_QUEUE_ON_DEVICE))) {
    handle = call.clCreateCommandQueue(context.handle, device, properties.empty() ? 0 : properties[1], &code);
  } else if (context.version >= 200) {
    std::vector<cl_queue_properties> list{properties.begin(), properties.end()};
    list.push_back(0);
    handle = call.clCreateCommandQueueWithProperties(context.handle, device, list.data(), &code);
  } else {
    return CL_INVALID_QUEUE_PROPERTIES;
  }
  if (!handle) return code;
  auto queue = std::make_unique<VendorQueue>();
  queue->handle = handle;
  queue->device = device;
  queue->is_own = is_own;
  for (std::size_t next = 0; next + 1 < properties.size(); next += 2) {
    if (properties[next] == CL_QUEUE_PROPERTIES)
      queue->in_order = !(properties[next + 1] & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  }
  queue->context = *contexts_[context_id];
  queue->turn = turn_of(device);
  cl_uint width = 1;
  functions(device).clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof width, &width, nullptr);
  queue->width = width;
  queue->staging = Staging::for_queue(context.handle, device, handle);
  const std::lock_guard lock{queues_mutex_};
  all_queues_.push_back(queue.get());
  queues_.set(id, queue.release());
  return CL_SUCCESS;
}

void LocalExecutor::share_device(std::uint32_t platform, cl_uint index, Turn& turn) {
  turns_[platforms_[platform].devices[index]] = &turn;
}

// A part of a device is shared as the device is.
Turn* LocalExecutor::turn_of(cl_device_id device) const {
  if (turns_.empty()) return nullptr;
  for (cl_device_id parent = nullptr; device; device = parent) {
    if (const auto found = turns_.find(device); found != turns_.end()) return found->second;
    parent = nullptr;
    functions(device).clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof(parent), &parent, nullptr);
  }
  return nullptr;
}

cl_int LocalExecutor::set_queue_property(ObjectId id, cl_command_queue_properties properties, cl_bool enable,
                                         cl_command_queue_properties* before) {
  cl_command_queue queue = queues_[id]->handle;
  const auto function = functions(queue).clSetCommandQueueProperty;
  return function ? function(queue, properties, enable, before) : CL_INVALID_OPERATION;
}

bool LocalExecutor::release_if_done(const Leaving& leaving) {
  if (!is_finished(leaving.marker)) return false;
  const auto& vendor = functions(leaving.marker);
  if (leaving.queue->turn) leaving.queue->turn->forget(leaving.queue->handle);
  vendor.clReleaseEvent(leaving.marker);
  vendor.clReleaseCommandQueue(leaving.queue->handle);
  vendor.clReleaseDevice(leaving.queue->device);
  return true;
}

// A released queue may still have work, which counts until it is done.
void LocalExecutor::free_queue(std::unique_ptr<VendorQueue> queue) {
  const auto& vendor = functions(queue->handle);
  const std::lock_guard lock{queues_mutex_};
  std::erase(all_queues_, queue.get());
  std::erase_if(leaving_, release_if_done);
  cl_event marker = nullptr;
  if (queue->busy && vendor.clEnqueueMarkerWithWaitList(queue->handle, 0, nullptr, &marker) == CL_SUCCESS) {
    vendor.clFlush(queue->handle);
    vendor.clRetainDevice(queue->device);
    leaving_.push_back({std::move(queue), marker});
  } else {
    if (queue->turn) queue->turn->forget(queue->handle);
    vendor.clReleaseCommandQueue(queue->handle);
  }
}

cl_int LocalExecutor::finish_leaving() {
  const std::lock_guard lock{queues_mutex_};
  for (const Leaving& left : leaving_) functions(left.marker).clWaitForEvents(1, &left.marker);
  std::erase_if(leaving_, release_if_done);
  return CL_SUCCESS;
}

// A marker for every queue, and the last of them to finish calls.
void LocalExecutor::when_idle(Whose whose, std::function<void()> call) {
  struct Pending {
    std::atomic<std::size_t> left;
    std::function<void()> call;
    void one_is_idle() {
      if (left.fetch_sub(1) == 1) call();
    }
  };
  std::vector<cl_event> markers;
  {
    const std::lock_guard lock{queues_mutex_};
    for (const Leaving& left : leaving_) {
      functions(left.marker).clRetainEvent(left.marker);
      markers.push_back(left.marker);
    }
    for (VendorQueue* queue : all_queues_) {
      if (queue->is_own && whose == Whose::programs) continue;
      cl_event marker = nullptr;
      const auto& vendor = functions(queue->handle);
      if (vendor.clEnqueueMarkerWithWaitList(queue->handle, 0, nullptr, &marker) != CL_SUCCESS) {
        vendor.clFinish(queue->handle);
        continue;
      }
      queue->busy.store(true, std::memory_order_relaxed);  // a marker is work, too, for which its device must stay
      vendor.clFlush(queue->handle);
      markers.push_back(marker);
    }
  }
  const auto pending = std::make_shared<Pending>();
  pending->left = markers.size() + 1;
  ++*askers_;
  pending->call = [call = std::move(call), askers = askers_] {
    call();
    --*askers;
  };
  for (cl_event marker : markers) {
    const auto made = EventCall::make(marker, CL_COMPLETE, [pending](cl_int) { pending->one_is_idle(); });
    if (!made) {
      functions(marker).clWaitForEvents(1, &marker);
      pending->one_is_idle();
    }
    if (whose == Whose::all || !made) {
      functions(marker).clReleaseEvent(marker);
      continue;
    }
    // NVIDIA's driver calls many milliseconds late while there are other commands; a move can't wait for that.
    const std::shared_ptr<_cl_event> keeper{marker, [](cl_event event) { functions(event).clReleaseEvent(event); }};
    watch_.add([keeper, call = *made] {
      if (!call->is_made() && is_finished(keeper.get())) call->make_it(CL_COMPLETE);
      return call->is_made();
    });
  }
  pending->one_is_idle();
}

}  // namespace grus
