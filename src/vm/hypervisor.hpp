// The QEMU of a virtual machine: a process that is spoken to itself, or libvirt's.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "vm/machine.hpp"
#include "vm/timeline.hpp"

namespace grus::vm {

class Hypervisor {
 public:
  Hypervisor() = default;
  virtual ~Hypervisor() = default;
  Hypervisor(const Hypervisor&) = delete;
  Hypervisor& operator=(const Hypervisor&) = delete;

  // All throw Failed, with its words, or Gone.
  virtual std::string status() = 0;        // "running", "paused", …
  virtual std::string agent_socket() = 0;  // of a machine that runs
  virtual void check_it_can_leave() = 0;
  virtual void check_it_can_come() = 0;

  virtual bool has_gpu() = 0;
  virtual void detach_gpu(std::chrono::seconds patience) = 0;  // and waits until the guest has let go of it
  virtual void attach_gpu() = 0;

  // The machine's travel. If this fails it hasn't gone.
  virtual void send_to(const Machine& destination, Timeline& timeline, const std::atomic<bool>& cancelled) = 0;
  virtual json figures_of_travel(const Machine& destination) = 0;  // {"downtime_ms", "total_ms", "ram_bytes"}
  virtual void resume() = 0;
};

// Throws Gone if nobody answers there.
std::unique_ptr<Hypervisor> hypervisor_of(const Machine& machine);

}  // namespace grus::vm
