#include "move/plan.hpp"

#include <algorithm>
#include <sstream>

#include "base/log.hpp"
#include "command/gate.hpp"
#include "objects/immovable.hpp"
#include "objects/profile.hpp"

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

// None if it is part of a name.
std::vector<std::pair<std::uint32_t, cl_uint>> numbers_in(const std::string& text) {
  std::vector<std::pair<std::uint32_t, cl_uint>> all;
  std::istringstream list{text};
  for (std::string one; std::getline(list, one, ',');) {
    std::uint32_t platform = 0;
    cl_uint device = 0;
    char colon = 0;
    std::istringstream stream{one};
    if (!(stream >> platform >> colon >> device) || colon != ':' || !stream.eof()) return {};
    all.emplace_back(platform, device);
  }
  return all;
}

bool is_meant(const Candidate& one, const std::string& by) {
  const auto numbers = numbers_in(by);
  if (numbers.empty()) return contains(one.name, by);
  return std::find(numbers.begin(), numbers.end(), std::pair{one.platform, one.index}) != numbers.end();
}

// What a device's memory amounts to is only promised by a profile: else what is in use has to fit, which is looked at
// apart.
bool is_memory_promised() { return profile_to_tell() && profile_to_tell()->tells(CL_DEVICE_GLOBAL_MEM_SIZE); }

// What the program was told about its device must hold at the destination. Native kernels only count if it has run one:
// hardly any program does, and no server has them.
std::vector<std::string> lacking(Device& device, Executor& to, ObjectId id) {
  const auto told = Profile::of_device([&](cl_device_info query) -> Result<Bytes> {
    if (query == CL_DEVICE_EXECUTION_CAPABILITIES && !device.runs_native_kernels)
      return to_bytes(cl_device_exec_capabilities{CL_EXEC_KERNEL});
    if (query == CL_DEVICE_GLOBAL_MEM_SIZE && !is_memory_promised()) return to_bytes(cl_ulong{0});
    return told_of(device, query);
  });
  const auto there = Profile::of_device([&](cl_device_info query) { return to.device_info(id, query); });
  const std::string name = text_of(to.device_info(id, CL_DEVICE_NAME));
  std::vector<std::string> reasons;
  for (const auto& reason : told.missing(there)) reasons.push_back(fmt::format("{}: {}", name, reason));
  return reasons;
}

// How many of those reasons are that it is smaller.
std::size_t count_want_of_room(Device& device, Executor& to) {
  const auto is_less = [&](cl_device_info query) {
    const auto told = told_of(device, query);
    const auto there = to.device_info(device.id(), query);
    return told && there && from_bytes<cl_ulong>(*there) < from_bytes<cl_ulong>(*told);
  };
  return (is_less(CL_DEVICE_MAX_MEM_ALLOC_SIZE) ? 1 : 0) +
         (is_memory_promised() && is_less(CL_DEVICE_GLOBAL_MEM_SIZE) ? 1 : 0);
}

// A name that no object of the program's has or will have.
ObjectId id_to_look_with() {
  const Gate::Entry entry{kInternalCall};
  return Ref<Device>::adopt(slab<Device>().create(nullptr, PlatformBelow{}, nullptr))->id();
}

std::vector<Candidate> candidates(Executor& to, const std::string& wanted, const std::string& avoided) {
  std::vector<Candidate> found;
  const auto platforms = to.platforms();
  for (std::uint32_t platform = 0; platform < platforms.size(); ++platform) {
    const auto count = to.device_count(platform);
    for (cl_uint index = 0; count && index < *count; ++index) {
      const ObjectId id = id_to_look_with();
      to.name_device(platform, index, id);
      const std::string name = text_of(to.device_info(id, CL_DEVICE_NAME));
      Candidate one{platform, index, platforms[platform].name + " / " + name};
      if (is_meant(one, wanted) && (avoided.empty() || !is_meant(one, avoided))) found.push_back(std::move(one));
    }
  }
  if (const auto numbers = numbers_in(wanted); !numbers.empty()) {  // in the order given
    const auto place = [&](const Candidate& one) {
      return std::find(numbers.begin(), numbers.end(), std::pair{one.platform, one.index});
    };
    std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  }
  return found;
}

bool shares_host_memory(Executor& to, ObjectId device) {
  const auto get = [&](cl_device_info query, auto otherwise) {
    const auto bytes = to.device_info(device, query);
    return bytes ? from_bytes<decltype(otherwise)>(*bytes) : otherwise;
  };
  return grus::shares_host_memory(get(CL_DEVICE_TYPE, cl_device_type{0}),
                                  get(CL_DEVICE_HOST_UNIFIED_MEMORY, cl_bool{CL_FALSE}));
}

// Those that the program asked for.
void check_image_formats(Context& context, Executor& to, const Plan& plan, std::vector<std::string>& reasons) {
  const auto told = context.image_formats.all();
  if (told.empty()) return;
  std::vector<ObjectId> devices;
  for (const auto& device : context.devices) devices.push_back(root_of(*device).id());
  ObjectId id;
  {
    const Gate::Entry entry{kInternalCall};
    id = Ref<Context>::adopt(slab<Context>().create(to))->id();
  }
  if (to.create_context(id, devices, plan.matches[0].platform, context.properties_below, {}) != CL_SUCCESS) return;
  for (const auto& [key, formats] : told) {
    const auto flags = cl_mem_flags{key >> 32};
    const auto type = static_cast<cl_mem_object_type>(key);
    if (!formats) continue;
    for (auto& reason : missing_formats(flags, type, *formats, to.supported_formats(id, flags, type)))
      reasons.push_back(fmt::format("{}: {}", plan.destination, reason));
  }
  to.free(ObjectType::context, id);
}

void check_objects(const Inventory& all, Executor& to, Plan& plan) {
  auto& reasons = plan.reasons;
  for (const Match& match : plan.matches) {
    const auto bytes = to.device_info(match.device->id(), CL_DEVICE_GLOBAL_MEM_SIZE);
    if (!bytes || from_bytes<cl_ulong>(*bytes) >= plan.bytes) continue;
    ++plan.for_want_of_room;
    reasons.push_back(
        fmt::format("{} bytes are in use, the destination has {}", plan.bytes, from_bytes<cl_ulong>(*bytes)));
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

Plan make_plan(const Inventory& all, Executor& to, const std::string& wanted, const std::string& avoided) {
  Plan plan;
  plan.reasons = immovable_reasons();
  plan.bytes = all.bytes();
  plan.objects = all.size();
  const auto roots = all.root_devices();
  auto there = candidates(to, wanted, avoided);
  if (there.empty()) {
    plan.reasons.push_back(fmt::format("the destination has no {}device{}", avoided.empty() ? "" : "other ",
                                       wanted.empty() ? "" : fmt::format(" like '{}'", wanted)));
    return plan;
  }
  // One that has all that the program was told of, if there is one.
  const auto lacks = [&](const Candidate& one) {
    const ObjectId id = id_to_look_with();
    to.name_device(one.platform, one.index, id);
    return !lacking(*roots[0], to, id).empty();
  };
  if (roots.size() == 1)
    std::stable_partition(there.begin(), there.end(), [&](const auto& one) { return !lacks(one); });
  // All devices go to one platform.
  std::erase_if(there, [platform = there[0].platform](const Candidate& one) { return one.platform != platform; });
  if (there.size() < roots.size()) {
    plan.reasons.push_back(
        fmt::format("the program uses {} devices, the destination has {}", roots.size(), there.size()));
    return plan;
  }
  for (std::size_t next = 0; next < roots.size(); ++next) {
    Device& device = *roots[next];
    to.name_device(there[next].platform, there[next].index, device.id());
    plan.matches.push_back({&device, there[next].platform, there[next].index, shares_host_memory(to, device.id())});
    plan.destination += (next == 0 ? "" : ", ") + there[next].name;
    for (auto& reason : lacking(device, to, device.id())) plan.reasons.push_back(std::move(reason));
    plan.for_want_of_room += count_want_of_room(device, to);
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
  check_objects(all, to, plan);
  for (const auto& context : all.contexts) check_image_formats(*context, to, plan, plan.reasons);
  return plan;
}

}  // namespace grus::move
