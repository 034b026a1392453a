// `grus agent`: carries out in a guest what `grus vm` asks for on the host.
//
// Lines of JSON over a virtio-serial port: a request {"id", "command", …}, and its answer {"id", "ok", "error",
// "steps", …}, whose steps are in seconds since the request came; before it, signs of life {"id", "alive"}. Who
// connects may find leftovers of another conversation: answers with other ids, or half a line.
#pragma once

#include "vm/agent_settings.hpp"
#include "vm/lines.hpp"

namespace grus::vm {

// What is asked for in one request. Never throws: what goes wrong is in the answer.
json answer_to(const json& request, const AgentSettings& settings);

// Answers until the process is ended. Throws Failed if the port isn't there.
inline constexpr std::chrono::seconds kSignOfLife{1};  // from an agent that is about something
[[noreturn]] void run_agent(const AgentSettings& settings);

}  // namespace grus::vm
