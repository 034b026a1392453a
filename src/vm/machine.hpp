// A virtual machine as `grus vm` knows it: where its QEMU and its agent answer, and which card it is given.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "vm/lines.hpp"
#include "vm/timeline.hpp"

namespace grus::vm {

inline constexpr const char* kCardAlias = "ua-gpu";  // by which libvirt knows the card

struct Machine {
  std::string name;
  std::string qmp;                  // QEMU's socket; or else:
  std::string libvirt;              // libvirt's URI
  std::string domain;               // as libvirt calls it
  std::string agent;                // a socket of QEMU's
  std::string incoming;             // where it waits for a machine that comes, as QEMU or libvirt writes it
  std::string proxy;                // a server, as the guest reaches it
  std::map<std::string, json> gpu;  // a card, if it is given one: arguments of device_add; or else:
  std::string gpu_xml;              // as libvirt writes it

  bool is_given_card() const { return !gpu.empty() || !gpu_xml.empty(); }
};

// From a file of TOML, one table for each. Throws Failed.
std::map<std::string, Machine> read_machines(const std::string& file);
std::string default_machines_file();

// The agent of a guest, seen from the host.
class Agent {
 public:
  explicit Agent(std::string socket) : socket_{std::move(socket)} {}

  // Waits for an agent that is started only now, or has just arrived. Throws Gone.
  json wait_until_there(Clock::time_point until);
  // What it answers, and its steps in the timeline. Throws Failed with its words, or Gone.
  json ask(Timeline& timeline, json request, std::chrono::seconds limit);

 private:
  json exchange(json request, Clock::time_point until);
  std::string socket_;
  std::optional<Lines> lines_;
};

}  // namespace grus::vm
