#include "vm/agent.hpp"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.hpp"
#include "cli/problem.hpp"

namespace grus::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  grus agent                             in a guest, as root: usually a service, docs/grus-agent.service
  grus agent --config ./agent.toml

It waits for what `grus vm` on the host asks for: programs leave the card and return to it, its driver is unloaded and
loaded. The virtual machine needs a virtio-serial port:
  -device virtio-serial-pci -chardev socket,id=agent,path=/run/NAME.agent,server=on,wait=off
  -device virtserialport,chardev=agent,name=org.grus.agent.0
Exit status: 1 the port isn't there, 2 wrong usage.)";

}  // namespace

Subcommand add_agent(CLI::App& grus) {
  auto file = std::make_shared<std::string>();
  auto port = std::make_shared<std::string>();
  CLI::App* app = grus.add_subcommand("agent", "In a guest: carry out what `grus vm` asks for on the host");
  app->footer(kExamples);
  app->add_option("--config", *file, std::string{"Settings; else "} + vm::kAgentFile + " if it is there")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  app->add_option("--port", *port, "The virtio-serial port; else /dev/virtio-ports/org.grus.agent.0")
      ->type_name("PATH");
  return {app, [file, port]() -> int {
            try {
              vm::AgentSettings settings = vm::read_agent_settings(*file);
              if (!port->empty()) settings.port = *port;
              vm::run_agent(settings);
            } catch (const vm::Failed& failed) {
              throw Problem{failed.what()};
            }
          }};
}

}  // namespace grus::cli
