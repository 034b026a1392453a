#include "vm/guest_sessions.hpp"

#include <algorithm>
#include <functional>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "channel/sessions.hpp"

namespace grus::vm {
namespace {

using namespace std::chrono_literals;

constexpr auto kToDescribe = 10s;
constexpr auto kSilence = 60s;  // of a session that is moved: a build or a kernel may take long
constexpr int kTurns = 5;       // for programs that are started while others leave

using Sessions = std::vector<json>;  // as they describe themselves, and "socket"

Sessions sessions_where(const std::function<bool(const json&)>& fits) {
  Sessions sessions;
  for (const std::string& socket : channel::session_sockets()) {
    try {
      json session = channel::ask_session(socket, {{"command", "describe"}}, {}, kToDescribe);
      session["socket"] = socket;
      if (session.value("ok", false) && fits(session)) sessions.push_back(std::move(session));
    } catch (const std::exception& error) {
      log::debug("agent.sessions", "{}", error.what());
    }
  }
  return sessions;
}

// On a device that the machine leaves behind: its card, or the host's.
bool is_here(const json& session) {
  const std::string at = session.value("at", "");
  return at == "local" || at.starts_with("virtio-serial:") || at.starts_with("ivshmem:") || at.starts_with("vsock:");
}

json steps_of(const json& session, const json& answer, double start, double seconds) {
  const std::string side = fmt::format("{}[{}]", session.value("program", ""), session.value("pid", 0));
  json steps = json::array();
  if (!answer.contains("phases"))
    return json::array({{{"side", side}, {"step", "failed"}, {"start", start}, {"seconds", seconds}}});
  for (const json& phase : answer["phases"]) {
    steps.push_back({{"side", side},
                     {"step", phase.value("phase", "")},
                     {"start", start + phase.value("start", 0.0)},
                     {"seconds", phase.value("seconds", 0.0)}});
  }
  return steps;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>{Clock::now() - start}.count(); }

json outcome_for(const json& session, const json& request, Clock::time_point begin) {
  const double start = seconds_since(begin);
  json answer;
  try {
    answer = channel::ask_session(session.value("socket", ""), request, {}, kSilence);
  } catch (const std::exception& error) {
    answer = {{"ok", false}, {"error", error.what()}};
  }
  json outcome = {{"pid", session["pid"]},
                  {"program", session["program"]},
                  {"from", session["at"]},
                  {"ok", answer.value("ok", false)}};
  for (const char* name : {"error", "no_room"}) {
    if (answer.contains(name)) outcome[name] = answer[name];
  }
  if (answer.contains("stop_seconds")) outcome["stop_seconds"] = answer["stop_seconds"];
  if (answer.contains("stays_loaded") && !answer["stays_loaded"].empty())
    outcome["stays_loaded"] = answer["stays_loaded"];
  outcome["steps"] = steps_of(session, answer, start, seconds_since(begin) - start);
  return outcome;
}

using RequestFor = std::function<json(const json& session)>;

json ask_all(const Sessions& sessions, const RequestFor& request_for, Clock::time_point begin) {
  std::vector<json> outcomes(sessions.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    threads.push_back(start_thread(
        "grus-session", [&, i] { outcomes[i] = outcome_for(sessions[i], request_for(sessions[i]), begin); }));
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// What became of it when it left; nothing of those that didn't.
json outcome_of(const json& left, const json& session) {
  const auto found =
      std::find_if(left.begin(), left.end(), [&](const json& one) { return one["pid"] == session["pid"]; });
  return found == left.end() ? json::object() : *found;
}

void append(json& outcomes, const json& more) {
  for (const json& one : more) outcomes.push_back(one);
}

}  // namespace

json describe_sessions() {
  json all = json::array();
  for (json& session : sessions_where([](const json&) { return true; })) {
    session.erase("ok");
    session.erase("socket");
    all.push_back(std::move(session));
  }
  return all;
}

json leave_for(const std::string& address) {
  const auto begin = Clock::now();
  json outcomes = json::array();
  for (int turn = 0; turn < kTurns; ++turn) {
    const Sessions here = sessions_where(is_here);
    if (here.empty()) return outcomes;
    const json now = ask_all(
        here,
        [&](const json&) {
          return json{{"command", "move"}, {"to", address}, {"unload", true}};
        },
        begin);
    append(outcomes, now);
    if (!all_ok(now)) break;
  }
  (void)return_from(address, outcomes);
  if (all_ok(outcomes)) {
    outcomes.push_back(
        {{"pid", 0}, {"program", "?"}, {"ok", false}, {"error", "programs are started faster than they can leave"}});
  }
  return outcomes;
}

json return_from(const std::string& address, const json& left) {
  const auto came = [&](const json& session) {  // and wasn't there before
    return session.value("at", "") == address &&
           (left.is_null() || outcome_of(left, session).value("from", address) != address);
  };
  return ask_all(
      sessions_where(came),
      [&](const json& session) {
        const json outcome = outcome_of(left, session);
        return json{{"command", "move"}, {"to", outcome.value("from", "local")}};
      },
      Clock::now());
}

json suspend_all() {
  json outcomes = ask_all(
      sessions_where(is_here),
      [](const json&) {
        return json{{"command", "suspend"}, {"unload", true}};
      },
      Clock::now());
  if (!all_ok(outcomes)) (void)resume_all(outcomes, "");
  return outcomes;
}

json resume_all(const json& left, const std::string& where) {
  const auto was_suspended = [&](const json& session) {
    return session.value("at", "") == "suspended" && (left.is_null() || outcome_of(left, session).value("ok", false));
  };
  return ask_all(
      sessions_where(was_suspended),
      [&](const json&) {
        json request = {{"command", "resume"}};
        if (!where.empty()) request["to"] = where;
        return request;
      },
      Clock::now());
}

bool all_ok(const json& outcomes) {
  return std::all_of(outcomes.begin(), outcomes.end(), [](const json& one) { return one.value("ok", false); });
}

std::string reasons_in(const json& outcomes) {
  std::string text;
  for (const json& one : outcomes) {
    if (one.value("ok", false)) continue;
    text += fmt::format("{}{}[{}]: {}", text.empty() ? "" : "; ", one.value("program", ""), one.value("pid", 0),
                        one.value("error", ""));
  }
  return text;
}

}  // namespace grus::vm
