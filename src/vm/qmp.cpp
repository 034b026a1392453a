#include "vm/qmp.hpp"

#include "base/log.hpp"

namespace grus::vm {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 10s;

}  // namespace

Qmp::Qmp(const std::string& socket) : lines_{connect_lines(socket)} {
  const auto greeting = lines_.receive(Clock::now() + kPatience);
  if (!greeting || !greeting->contains("QMP"))
    throw Gone{fmt::format("{}: QEMU doesn't answer there; somebody else may be connected", socket)};
  execute("qmp_capabilities");
}

json Qmp::execute(const std::string& command, const json& arguments) {
  lines_.send({{"execute", command}, {"arguments", arguments}});
  const auto until = Clock::now() + kPatience;
  while (const auto answer = lines_.receive(until)) {
    if (answer->contains("event")) {
      events_.push_back(*answer);
    } else if (answer->contains("error")) {
      throw Failed{fmt::format("QEMU: {}: {}", command, (*answer)["error"].value("desc", ""))};
    } else if (answer->contains("return")) {
      return (*answer)["return"];
    }
  }
  throw Gone{fmt::format("{}: QEMU doesn't answer `{}`", lines_.name(), command)};
}

std::optional<json> Qmp::wait_for(const std::function<bool(const json&)>& fits, Clock::time_point until) {
  for (;;) {
    while (!events_.empty()) {
      json event = std::move(events_.front());
      events_.pop_front();
      if (fits(event)) return event;
    }
    auto more = lines_.receive(until);
    if (!more) return std::nullopt;
    if (more->contains("event")) events_.push_back(std::move(*more));
  }
}

}  // namespace grus::vm
