#include "vm/hypervisor.hpp"

#include "vm/libvirt.hpp"
#include "vm/qemu.hpp"

namespace grus::vm {

std::unique_ptr<Hypervisor> hypervisor_of(const Machine& machine) {
  if (machine.libvirt.empty()) return std::make_unique<Qemu>(machine);
  return std::make_unique<Domain>(machine);
}

}  // namespace grus::vm
