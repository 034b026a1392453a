// Lines of JSON over a descriptor: a socket of QEMU's, or the guest's end of a virtio-serial port.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "channel/descriptor.hpp"

namespace grus::vm {

using json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// What couldn't be done, and what to do about it.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Nobody is at the other end.
struct Gone : Failed {
  using Failed::Failed;
};
// For want of memory, and for nothing else.
struct NoRoom : Failed {
  using Failed::Failed;
};

class Lines {
 public:
  Lines(channel::Descriptor descriptor, std::string name)
      : descriptor_{std::move(descriptor)}, name_{std::move(name)} {}

  void send(const json& value);  // throws Gone
  // Nothing if it is too late, or if what came is no JSON object. Throws Gone.
  std::optional<json> receive(Clock::time_point until);
  const std::string& name() const { return name_; }

 private:
  channel::Descriptor descriptor_;
  std::string name_;  // for messages
  std::string received_;
};

// To a socket that QEMU listens on. Throws Gone.
Lines connect_lines(const std::string& path);

}  // namespace grus::vm
