// What the agent in a guest is told about the card that comes and goes: /etc/grus/agent.toml.
#pragma once

#include <string>
#include <vector>

namespace grus::vm {

struct AgentSettings {
  std::string port = "/dev/virtio-ports/org.grus.agent.0";
  std::vector<std::string> devices;       // of PCI, as VENDOR:DEVICE; all of them must have come
  std::vector<std::string> device_files;  // patterns; who has one open uses the card
  std::vector<std::string> unload;        // commands
  std::vector<std::string> load;
  std::string probe;  // a command that succeeds once the card can be used
};

inline constexpr const char* kAgentFile = "/etc/grus/agent.toml";

// Throws Failed. A file that isn't there is as good as an empty one, unless it was asked for.
AgentSettings read_agent_settings(const std::string& file);

}  // namespace grus::vm
