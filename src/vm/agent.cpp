#include "vm/agent.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <thread>

#include "base/log.hpp"
#include "vm/card.hpp"
#include "vm/guest_sessions.hpp"
#include "vm/timeline.hpp"

namespace grus::vm {
namespace {

using namespace std::chrono_literals;

constexpr auto kUntilSomebodyConnects = 50ms;  // a port whose other end is closed can't be waited for
constexpr auto kForTheCard = 60s;

class Request {
 public:
  Request(const json& request, const AgentSettings& settings) : request_{request}, settings_{settings} {}

  json carry_out() {
    json answer = {{"id", request_.value("id", std::uint64_t{0})}};
    const auto begin = Clock::now();
    try {
      answer.update(do_it());
      answer["ok"] = true;
    } catch (const std::exception& error) {
      answer["ok"] = false;
      answer["error"] = error.what();
    }
    if (!sessions_.is_null()) answer["sessions"] = sessions_;
    answer["steps"] = timeline_.steps();
    answer["seconds"] = std::chrono::duration<double>{Clock::now() - begin}.count();
    return answer;
  }

 private:
  json do_it() {
    const std::string command = request_.value("command", "");
    if (command == "hello") return hello();
    if (command == "move") return with_sessions("move", [&] { return leave_for(address()); });
    if (command == "return") return with_sessions("return", [&] { return return_from(address(), left()); });
    if (command == "suspend") return with_sessions("suspend", suspend_all);
    if (command == "resume") return with_sessions("resume", [&] { return resume_all(left(), ""); });
    if (command == "resume_at") return with_sessions("resume", [&] { return resume_all(left(), address()); });
    if (command == "unload") return unload();
    if (command == "load") return load();
    throw Failed{fmt::format("'{}' is nothing that this version of `grus agent` knows", command)};
  }

  std::string address() const {
    std::string to = request_.value("address", "");
    if (to.empty()) throw Failed{"no address was given"};
    return to;
  }

  // What was answered when they left; null if nobody knows.
  json left() const {
    if (!request_.contains("left")) return {};
    json sessions = request_["left"];
    const bool makes_sense = std::all_of(sessions.begin(), sessions.end(),
                                         [](const json& one) { return one.is_object() && one.contains("pid"); });
    if (!sessions.is_array() || !makes_sense) throw Failed{"it must be told who left, in a list"};
    return sessions;
  }

  json hello() const {
    return {{"version", GRUS_VERSION}, {"has_card", has_card(settings_)}, {"programs", describe_sessions()}};
  }

  template <typename Body>
  json with_sessions(const char* name, Body body) {
    const auto start = Clock::now();
    sessions_ = timeline_.step(name, body);
    for (json& session : sessions_) {
      timeline_.add("guest", session["steps"], start);
      session.erase("steps");
    }
    if (!all_ok(sessions_)) throw Failed{reasons_in(sessions_)};
    return json::object();
  }

  json unload() {
    const auto users = users_of_card(settings_);
    if (!users.empty())
      throw Failed{fmt::format("the card is still in use by {}: end what can't be moved", fmt::join(users, ", "))};
    for (const std::string& command : settings_.unload) timeline_.step(command, [&] { run_command(command); });
    return json::object();
  }

  json load() {
    const auto until =
        Clock::now() + std::chrono::seconds{request_.value("patience", std::int64_t{kForTheCard.count()})};
    timeline_.step("wait for the card", [&] { wait_for_card(settings_, until); });
    if (is_usable(settings_)) return json::object();  // it never went
    for (const std::string& command : settings_.load) timeline_.step(command, [&] { run_command(command); });
    timeline_.step("wait for its driver", [&] { wait_for_probe(settings_, until); });
    return json::object();
  }

  const json& request_;
  const AgentSettings& settings_;
  Timeline timeline_{"guest"};
  json sessions_;
};

// Tells every now and then that it is still about it: a host can't see whether an agent was ended.
void answer(const json& request, const AgentSettings& settings, Lines& lines) {
  log::info("agent", "{}", request.dump());
  auto answered = std::async(std::launch::async, [&] { return answer_to(request, settings); });
  while (answered.wait_for(kSignOfLife) != std::future_status::ready) {
    try {
      lines.send({{"id", request.contains("id") ? request["id"] : json{}}, {"alive", true}});
    } catch (const Gone&) {  // what was begun is done all the same
      continue;
    }
  }
  lines.send(answered.get());
}

}  // namespace

json answer_to(const json& request, const AgentSettings& settings) {
  try {
    return Request{request, settings}.carry_out();
  } catch (const std::exception& error) {  // such as an id of another type
    return {{"ok", false}, {"error", error.what()}};
  }
}

void run_agent(const AgentSettings& settings) {
  channel::Descriptor port{open(settings.port.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)};
  if (port.get() < 0) {
    throw Failed{fmt::format("{}: {}{}", settings.port, std::strerror(errno),
                             errno == ENOENT ? ": the virtual machine needs a virtio-serial port of that name" : "")};
  }
  Lines lines{std::move(port), settings.port};
  for (;;) {
    try {
      const auto request = lines.receive(Clock::now() + 1h);
      if (!request) continue;
      answer(*request, settings, lines);
    } catch (const Gone&) {
      std::this_thread::sleep_for(kUntilSomebodyConnects);
    }
  }
}

}  // namespace grus::vm
