#include "move/plan.hpp"

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/log.hpp"
#include "command/gate.hpp"
#include "objects/immovable.hpp"

namespace grus::move {
namespace {

struct Candidate {
  std::uint32_t platform = 0;
  cl_uint index = 0;
  std::string name;
};

std::string text_of(const Result<Bytes>& bytes) { return bytes ? text_from_bytes(*bytes) : std::string{}; }

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  return lower(text).find(lower(part)) != std::string::npos;
}

std::optional<std::pair<std::uint32_t, cl_uint>> numbers_in(const std::string& text) {
  std::uint32_t platform = 0;
  cl_uint device = 0;
  char colon = 0;
  std::istringstream stream{text};
  if (stream >> platform >> colon >> device && colon == ':' && stream.eof()) return std::pair{platform, device};
  return std::nullopt;
}

// What the program was told about its device must hold at the destination.
class Comparison {
 public:
  Comparison(Device& device, Executor& to, std::vector<std::string>& reasons)
      : device_{device}, to_{to}, reasons_{reasons}, there_{text_of(to.device_info(device.id(), CL_DEVICE_NAME))} {}

  void make() {
    at_least<cl_ulong>(CL_DEVICE_MAX_MEM_ALLOC_SIZE, "bytes in one object");
    at_least<cl_ulong>(CL_DEVICE_LOCAL_MEM_SIZE, "bytes of local memory");
    at_least<std::size_t>(CL_DEVICE_MAX_WORK_GROUP_SIZE, "work-items in a group");
    at_least<std::size_t>(CL_DEVICE_MAX_PARAMETER_SIZE, "bytes of arguments");
    at_least<cl_ulong>(CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, "bytes of constant memory");
    at_least<cl_uint>(CL_DEVICE_MAX_CONSTANT_ARGS, "constant arguments");
    at_least<cl_uint>(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, "dimensions");
    at_most<cl_uint>(CL_DEVICE_MEM_BASE_ADDR_ALIGN, "bits of alignment that sub-buffers need");
    if (device_.limits.images) {
      if (!get<cl_bool>(CL_DEVICE_IMAGE_SUPPORT)) miss("images", "yes", "no");
      at_least<std::size_t>(CL_DEVICE_IMAGE2D_MAX_WIDTH, "pixels of width of an image");
      at_least<std::size_t>(CL_DEVICE_IMAGE2D_MAX_HEIGHT, "pixels of height of an image");
      at_least<std::size_t>(CL_DEVICE_IMAGE3D_MAX_DEPTH, "pixels of depth of an image");
      at_least<std::size_t>(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, "pixels of an image made from a buffer");
      at_least<std::size_t>(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, "images in an array");
      at_least<cl_uint>(CL_DEVICE_MAX_READ_IMAGE_ARGS, "images that a kernel reads");
      at_least<cl_uint>(CL_DEVICE_MAX_WRITE_IMAGE_ARGS, "images that a kernel writes");
      at_least<cl_uint>(CL_DEVICE_MAX_SAMPLERS, "samplers of a kernel");
    }
    const auto missing_queue = device_.limits.queue_properties &
                               ~get<cl_command_queue_properties>(CL_DEVICE_QUEUE_PROPERTIES);
    if (missing_queue & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) miss("queues out of order", "yes", "no");
    if (missing_queue & CL_QUEUE_PROFILING_ENABLE) miss("profiling", "yes", "no");
    if (get<cl_uint>(CL_DEVICE_ADDRESS_BITS) != was<cl_uint>(CL_DEVICE_ADDRESS_BITS))
      miss("bits of an address", was<cl_uint>(CL_DEVICE_ADDRESS_BITS), get<cl_uint>(CL_DEVICE_ADDRESS_BITS));
    for (const cl_device_info query : {CL_DEVICE_DOUBLE_FP_CONFIG, CL_DEVICE_HALF_FP_CONFIG}) {
      if (was<cl_device_fp_config>(query) && !get<cl_device_fp_config>(query))
        miss(query == CL_DEVICE_DOUBLE_FP_CONFIG ? "double precision" : "half precision", "yes", "no");
    }
  }

 private:
  template <typename T>
  T get(cl_device_info query) {
    const auto bytes = to_.device_info(device_.id(), query);
    return bytes ? from_bytes<T>(*bytes) : T{};
  }
  template <typename T>
  T was(cl_device_info query) {
    const auto& bytes = device_.facts.get(query, [&] { return executor_of(device_).device_info(device_.id(), query); });
    return bytes ? from_bytes<T>(*bytes) : T{};
  }
  template <typename T>
  void at_least(cl_device_info query, const char* what) {
    if (get<T>(query) < was<T>(query)) miss(what, was<T>(query), get<T>(query));
  }
  template <typename T>
  void at_most(cl_device_info query, const char* what) {
    if (get<T>(query) > was<T>(query)) miss(what, was<T>(query), get<T>(query));
  }
  void miss(const char* what, const auto& told, const auto& has) {
    reasons_.push_back(fmt::format("{}: the program was told of {} {}, there {}", there_, told, what, has));
  }

  Device& device_;
  Executor& to_;
  std::vector<std::string>& reasons_;
  const std::string there_;
};

// A name that no object of the program's has or will have.
ObjectId id_to_look_with() {
  const Gate::Entry entry{kInternalCall};
  return Ref<Device>::adopt(slab<Device>().create(nullptr, PlatformBelow{}, nullptr))->id();
}

std::vector<Candidate> candidates(Executor& to, const std::string& wanted) {
  std::vector<Candidate> found;
  const auto platforms = to.platforms();
  const auto numbers = numbers_in(wanted);
  for (std::uint32_t platform = 0; platform < platforms.size(); ++platform) {
    const auto count = to.device_count(platform);
    for (cl_uint index = 0; count && index < *count; ++index) {
      const ObjectId id = id_to_look_with();
      to.name_device(platform, index, id);
      const std::string name = text_of(to.device_info(id, CL_DEVICE_NAME));
      const bool fits = numbers ? numbers->first == platform && numbers->second == index
                                : wanted.empty() || contains(name, wanted) || contains(platforms[platform].name, wanted);
      if (fits) found.push_back({platform, index, platforms[platform].name + " / " + name});
    }
  }
  return found;
}

bool shares_host_memory(Executor& to, ObjectId device) {
  const auto get = [&](cl_device_info query, auto otherwise) {
    const auto bytes = to.device_info(device, query);
    return bytes ? from_bytes<decltype(otherwise)>(*bytes) : otherwise;
  };
  if (treats_memory_as_own()) return false;
  return (get(CL_DEVICE_TYPE, cl_device_type{0}) & CL_DEVICE_TYPE_CPU) ||
         get(CL_DEVICE_HOST_UNIFIED_MEMORY, cl_bool{CL_FALSE});
}

void check_objects(const Inventory& all, Executor& to, const Plan& plan, std::vector<std::string>& reasons) {
  for (const Match& match : plan.matches) {
    const auto bytes = to.device_info(match.device->id(), CL_DEVICE_GLOBAL_MEM_SIZE);
    if (bytes && from_bytes<cl_ulong>(*bytes) < plan.bytes)
      reasons.push_back(fmt::format("{} bytes are in use, the destination has {}", plan.bytes,
                                    from_bytes<cl_ulong>(*bytes)));
  }
  for (const auto& program : all.programs) {
    const std::lock_guard lock{program->mutex};
    const Recipe& recipe = *program->recipe;
    if (recipe.origin != ProgramOrigin::binary || recipe.fallback) continue;
    const bool is_same = std::all_of(program->devices.begin(), program->devices.end(), [&](const auto& device) {
      return executor_of(*device).device_identity(device->id()) == to.device_identity(device->id());
    });
    if (!is_same) reasons.emplace_back("a program was loaded from a driver's own binary, which fits no other device");
  }
}

}  // namespace

Plan make_plan(const Inventory& all, Executor& to, const std::string& wanted) {
  Plan plan;
  plan.reasons = immovable_reasons();
  plan.bytes = all.bytes();
  plan.objects = all.size();
  const auto roots = all.root_devices();
  auto there = candidates(to, wanted);
  if (there.empty()) {
    plan.reasons.push_back(wanted.empty() ? "the destination has no device"
                                          : fmt::format("the destination has no device like '{}'", wanted));
    return plan;
  }
  std::erase_if(there, [&](const Candidate& one) { return one.platform != there[0].platform; });
  if (there.size() < roots.size()) {
    plan.reasons.push_back(
        fmt::format("the program uses {} devices, the destination has {}", roots.size(), there.size()));
    return plan;
  }
  for (std::size_t next = 0; next < roots.size(); ++next) {
    Device& device = *roots[next];
    to.name_device(there[next].platform, there[next].index, device.id());
    plan.matches.push_back(
        {&device, there[next].platform, there[next].index, shares_host_memory(to, device.id())});
    plan.destination += (next == 0 ? "" : ", ") + there[next].name;
    Comparison{device, to, plan.reasons}.make();
  }
  // Devices that nothing was made on come along, so that the session needs nothing any more where it was.
  for (const auto& device : all.idle_devices) {
    const bool leaves = roots.empty() || std::any_of(roots.begin(), roots.end(), [&](const Device* root) {
      return root->home.executor == device->home.executor;
    });
    if (!leaves) continue;
    const Candidate& one = there[plan.matches.size() % there.size()];
    to.name_device(one.platform, one.index, device->id());
    plan.matches.push_back({device.get(), one.platform, one.index, shares_host_memory(to, device->id())});
  }
  check_objects(all, to, plan, plan.reasons);
  return plan;
}

}  // namespace grus::move
