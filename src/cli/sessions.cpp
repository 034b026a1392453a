#include "cli/sessions.hpp"

#include <CLI/StringTools.hpp>
#include <algorithm>
#include <array>
#include <filesystem>

#include "base/log.hpp"
#include "channel/control.hpp"
#include "channel/sessions.hpp"
#include "channel/stream.hpp"
#include "cli/problem.hpp"
#include "cli/table.hpp"

namespace grus::cli {

json ask_session(pid_t pid, const json& request, const std::function<void(const json&)>& on_progress) {
  try {
    return channel::ask_session(channel::session_socket(pid), request, on_progress);
  } catch (const channel::Lost&) {
    throw Problem{fmt::format("the program with process id {} ended, or says nothing sensible", pid)};
  }
}

std::vector<json> local_sessions() {
  std::vector<json> sessions;
  for (const pid_t pid : channel::sessions_of_this_user()) {
    try {
      sessions.push_back(ask_session(pid, {{"command", "describe"}}));
    } catch (const std::exception&) {  // it ended meanwhile
      continue;
    }
  }
  return sessions;
}

std::vector<json> sessions_meant(const std::string& session) {
  if (session.empty()) throw Problem{"name a program: a process id, a name, or `all`", kUsage};
  const bool is_number = !session.empty() && session.find_first_not_of("0123456789") == std::string::npos;
  std::vector<json> sessions;
  if (is_number) {  // the others needn't be asked
    try {
      sessions.push_back(ask_session(std::stoi(session), {{"command", "describe"}}));
    } catch (const std::exception&) {
      sessions.clear();
    }
  } else {
    sessions = local_sessions();
  }
  if (session != "all") {
    std::erase_if(sessions, [&](const json& one) {
      return one.value("name", "") != session && std::to_string(one.value("pid", 0)) != session;
    });
  }
  if (sessions.empty())
    throw Problem{session == "all"
                      ? "no program of yours runs under Grus on this host"
                      : fmt::format("no program here has the process id or name {}; `grus ps` lists them", session)};
  return sessions;
}

bool is_address(const std::string& where) {
  constexpr std::array kKinds{"unix:", "tcp:", "vsock:", "virtio-serial:", "ivshmem:"};
  return std::any_of(kKinds.begin(), kKinds.end(), [&](const char* kind) { return where.starts_with(kind); });
}

std::string absolute(const std::string& address) {
  return address.starts_with("unix:") ? "unix:" + std::filesystem::weakly_canonical(address.substr(5)).string()
                                      : address;
}

std::vector<json> sessions_at(const std::string& where) {
  const auto is_there = [&](const json& session) {
    const std::string at = session.value("at", "");
    if (is_address(where)) return absolute(at) == absolute(where);
    return at == "local" && std::any_of(session["places"].begin(), session["places"].end(), [&](const json& place) {
             return place.value("number", "") == where ||
                    CLI::detail::to_lower(place.value("name", "")).find(CLI::detail::to_lower(where)) !=
                        std::string::npos;
           });
  };
  auto sessions = local_sessions();
  std::erase_if(sessions, [&](const json& session) { return !is_there(session); });
  return sessions;
}

json server_answer(const channel::Address& server, const std::string& said) {
  json answer = json::parse(said, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) throw Problem{fmt::format("{}: it says nothing sensible", server.text())};
  if (answer.contains("error")) throw Problem{fmt::format("{}: {}", server.text(), answer.value("error", ""))};
  return answer;
}

std::string size_of(const json& what, const char* key) { return size_text(what.value(key, std::uint64_t{0})); }

std::string quota_text(const json& tenant) {
  return tenant.value("quota_bytes", std::uint64_t{0}) != 0 ? size_of(tenant, "quota_bytes") : "all";
}

}  // namespace grus::cli
