// QEMU's machine protocol.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "vm/lines.hpp"

namespace grus::vm {

class Qmp {
 public:
  explicit Qmp(const std::string& socket);  // throws Gone if nobody answers there

  // What QEMU answers. Throws Failed with its words, or Gone.
  json execute(const std::string& command, const json& arguments = json::object());
  // The first event since the last one that was taken for which that is true; nothing if there is none in time.
  std::optional<json> wait_for(const std::function<bool(const json&)>& fits, Clock::time_point until);
  void forget_events() { events_.clear(); }

 private:
  Lines lines_;
  std::deque<json> events_;
};

}  // namespace grus::vm
