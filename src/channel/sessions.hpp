// The programs that run under Grus on this host, as seen from outside: requests to their control sockets.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace grus::channel {

// Sends a request and answers with the last line of the answer; the others are shown to on_progress. With a limit, a
// program that says nothing for so long is given up. Throws Lost.
nlohmann::ordered_json ask_session(const std::string& socket, const nlohmann::ordered_json& request,
                                   const std::function<void(const nlohmann::ordered_json&)>& on_progress = {},
                                   std::optional<std::chrono::milliseconds> limit = {});

// Of this user; for root of everybody, unless XDG_RUNTIME_DIR says where to look.
std::vector<std::string> session_sockets();

}  // namespace grus::channel
