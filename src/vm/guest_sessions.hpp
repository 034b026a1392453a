// All programs of a guest that run under Grus, moved and suspended together.
#pragma once

#include <string>
#include <vector>

#include "vm/lines.hpp"

namespace grus::vm {

// What each says about itself; for root, everybody's. Those that don't answer are left out.
json describe_sessions();

// Each answers what became of every session that was asked: {"pid", "program", "from", "ok", "error", "steps"}, with
// the steps of its move in seconds since the call. Sessions are asked side by side.

// All that are on the machine's card, or on the host's device, go there, or none: those that have gone come back if
// another can't. Programs that are started meanwhile follow.
json leave_for(const std::string& address);
// Those that left for that server go to where they were. If nobody knows who did (null), all that are there go to the
// machine's own device. One that can't stays.
json return_from(const std::string& address, const json& left);
json suspend_all();
// Those that left, or all if nobody knows (null); where they were, unless told.
json resume_all(const json& left, const std::string& where);

bool all_ok(const json& outcomes);
std::string reasons_in(const json& outcomes);  // of those that failed

}  // namespace grus::vm
