// A domain of libvirt's, which is spoken to with `virsh`: so nothing of libvirt is needed where there is none.
#pragma once

#include <functional>

#include "vm/command.hpp"
#include "vm/hypervisor.hpp"

namespace grus::vm {

class Domain final : public Hypervisor {
 public:
  explicit Domain(const Machine& machine) : machine_{machine} {}

  std::string status() override;
  std::string agent_socket() override;
  void check_it_can_leave() override;
  void check_it_can_come() override;
  bool has_gpu() override;
  void detach_gpu(std::chrono::seconds patience) override;
  void attach_gpu() override { virsh({"attach-device", machine_.domain, "/dev/stdin", "--live"}, machine_.gpu_xml); }
  void send_to(const Machine& destination, Timeline& timeline, const std::atomic<bool>& cancelled) override;
  json figures_of_travel(const Machine& destination) override;
  void resume() override;

 private:
  Ran try_virsh(const std::vector<std::string>& words, const std::string& input = {},
                const std::function<void()>& meanwhile = {}) const;
  std::string virsh(const std::vector<std::string>& words, const std::string& input = {}) const;
  std::string xml() const { return virsh({"dumpxml", machine_.domain}); }

  const Machine& machine_;
};

// For libvirt's hook, which is asked by the host that a domain comes to: the domain as it is to be taken, or nothing if
// that is as it comes. Throws Failed, with the right command, if its programs haven't been moved.
std::string take_domain(const std::string& name, const std::string& xml);

}  // namespace grus::vm
