#include "cli/sessions.hpp"

#include "base/log.hpp"
#include "channel/control.hpp"
#include "cli/problem.hpp"

namespace grus::cli {

json ask_session(pid_t pid, const json& request, const std::function<void(const json&)>& on_progress) {
  channel::Line line{channel::connect_to({channel::Address::Kind::unix_socket, channel::session_socket(pid), {}})};
  line.send(request.dump());
  while (const auto text = line.receive()) {
    json answer = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) break;
    if (answer.contains("ok")) return answer;
    if (on_progress) on_progress(answer);
  }
  throw Problem{fmt::format("the program with process id {} ended, or says nothing sensible", pid)};
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

}  // namespace grus::cli
