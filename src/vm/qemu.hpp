// A QEMU that is spoken to over its machine protocol.
#pragma once

#include "vm/hypervisor.hpp"
#include "vm/qmp.hpp"

namespace grus::vm {

class Qemu final : public Hypervisor {
 public:
  explicit Qemu(const Machine& machine) : machine_{machine}, qmp_{machine.qmp} {}

  std::string status() override;
  std::string agent_socket() override { return machine_.agent; }
  void check_it_can_leave() override;
  void check_it_can_come() override;
  bool has_gpu() override;
  void detach_gpu(std::chrono::seconds patience) override;
  void attach_gpu() override { qmp_.execute("device_add", machine_.gpu); }
  void send_to(const Machine& destination, Timeline& timeline, const std::atomic<bool>& cancelled) override;
  json figures_of_travel(const Machine& destination) override;
  void resume() override { qmp_.execute("cont"); }

 private:
  std::string gpu_id() const { return machine_.gpu.at("id").get<std::string>(); }
  bool has_shared_memory_of_others();  // ivshmem, unless this QEMU is the master of its content
  void follow_migration(Timeline& timeline, const std::atomic<bool>& cancelled);

  const Machine& machine_;
  Qmp qmp_;
};

}  // namespace grus::vm
