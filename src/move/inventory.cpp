#include "move/inventory.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace grus::move {
namespace {

template <typename T, typename Wanted>
std::vector<Ref<T>> all_of(Wanted wanted) {
  std::vector<Ref<T>> all;
  slab<T>().each_live([&](T& object) {
    if (wanted(object)) all.emplace_back(&object);
  });
  // Generations are the high bits, so this is the order of creation: what an object is made of comes before it.
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->id().value() < b->id().value(); });
  return all;
}

}  // namespace

Device& root_of(Device& device) { return device.parent ? root_of(*device.parent) : device; }

std::string numbers_of(const Device& device) { return fmt::format("{}:{}", device.home.index, device.index); }

Inventory Inventory::take() {
  const auto is_created = [](const auto& object) -> bool { return object.created; };
  Inventory all;
  all.sub_devices = all_of<Device>([](const Device& device) { return device.is_named; });
  all.contexts = all_of<Context>(is_created);
  all.samplers = all_of<Sampler>(is_created);
  all.queues = all_of<Queue>(is_created);
  all.memories = all_of<Memory>([](const Memory& memory) { return memory.created && !memory.is_region; });
  all.programs = all_of<Program>(is_created);
  all.kernels = all_of<Kernel>(is_created);
  const auto used = all.root_devices();
  all.idle_devices = all_of<Device>([&](const Device& device) {
    return !device.is_named && std::find(used.begin(), used.end(), &device) == used.end();
  });
  return all;
}

std::vector<Device*> Inventory::root_devices() const {
  std::vector<Device*> roots;
  const auto add = [&](Device& device) {
    Device* const root = &root_of(device);
    if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
  };
  for (const auto& context : contexts) {
    for (const auto& device : context->devices) add(*device);
  }
  for (const auto& device : sub_devices) add(*device);
  return roots;
}

std::size_t Inventory::size() const {
  return contexts.size() + samplers.size() + queues.size() + memories.size() + programs.size() + kernels.size();
}

std::uint64_t Inventory::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& memory : memories) sum += memory->parent ? 0 : memory->size;
  return sum;
}

std::uint64_t Inventory::image_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& memory : memories) sum += memory->parent || !memory->is_image() ? 0 : memory->size;
  return sum;
}

}  // namespace grus::move
