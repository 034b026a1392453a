// All the live objects of the session, in the order of their creation. Each is kept alive, so an inventory must be let
// go of inside the gate.
#pragma once

#include "objects/kernel.hpp"

namespace grus::move {

struct Inventory {
  std::vector<Ref<Device>> sub_devices;
  std::vector<Ref<Device>> idle_devices;  // no sub-devices, and nothing made on them
  std::vector<Ref<Context>> contexts;
  std::vector<Ref<Sampler>> samplers;
  std::vector<Ref<Queue>> queues;
  std::vector<Ref<Memory>> memories;  // not those that Grus has for mappings
  std::vector<Ref<Program>> programs;
  std::vector<Ref<Kernel>> kernels;

  static Inventory take();  // with the gate closed

  std::vector<Device*> root_devices() const;  // of all contexts
  std::size_t size() const;                   // how many objects
  std::uint64_t bytes() const;                // of memory objects that aren't views of others
  std::uint64_t image_bytes() const;          // of these, of images
};

Device& root_of(Device& device);
std::string numbers_of(const Device& device);  // PLATFORM:DEVICE, where it is

}  // namespace grus::move
