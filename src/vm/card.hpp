// The guest's view of a card that comes and goes.
#pragma once

#include <string>
#include <vector>

#include "vm/agent_settings.hpp"
#include "vm/lines.hpp"

namespace grus::vm {

// Whether all devices that the settings name are there.
bool has_card(const AgentSettings& settings);
// "program[pid]" of all that have a device file of the card open.
std::vector<std::string> users_of_card(const AgentSettings& settings);
// Throws Failed if it takes longer: the system tells when a device comes, so nothing is slept through.
void wait_for_card(const AgentSettings& settings, Clock::time_point until);
// Whether the probe succeeds; without one nobody knows.
bool is_usable(const AgentSettings& settings);
// The same as for the card for its driver.
void wait_for_probe(const AgentSettings& settings, Clock::time_point until);
// By the shell. Throws Failed with what the command said, if it fails.
void run_command(const std::string& command);

}  // namespace grus::vm
