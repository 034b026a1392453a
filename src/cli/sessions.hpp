// The programs of this user's that run under Grus on this host, and how to talk to them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "channel/address.hpp"

namespace grus::cli {

using json = nlohmann::ordered_json;

// What each says about itself. Those that end meanwhile are left out.
std::vector<json> local_sessions();
// Those that SESSION means: a process id, a name given with `grus run --name`, or `all`. Throws Problem if there is
// none.
std::vector<json> sessions_meant(const std::string& session);
// Those that use a device of this machine's (PLATFORM:DEVICE by number, or part of a name) or are at that server.
std::vector<json> sessions_at(const std::string& where);
// Whether it names a server, not a device.
bool is_address(const std::string& where);
std::string absolute(const std::string& address);  // whoever is told may be in another folder
// Sends a request and answers with the last line of the answer; the others are shown to on_progress. Throws Problem.
json ask_session(pid_t pid, const json& request, const std::function<void(const json&)>& on_progress = {});
// What a server said about itself. Throws Problem if that is an error, or nothing.
json server_answer(const channel::Address& server, const std::string& said);
// Of what it said, for people: a size, and what a tenant may have.
std::string size_of(const json& what, const char* key);
std::string quota_text(const json& tenant);

}  // namespace grus::cli
