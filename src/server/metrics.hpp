// What the server tells Prometheus, as text over HTTP. Everybody who connects is told all of it, and nothing else can
// be done there.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "channel/descriptor.hpp"

namespace grus::server {

// Of what the server says about itself.
std::string metrics_text(const nlohmann::ordered_json& status);

// Who asks for it, each for a few seconds at most.
class MetricsDoor {
 public:
  using Clock = std::chrono::steady_clock;
  MetricsDoor() = default;
  explicit MetricsDoor(channel::Descriptor listening) : listening_{std::move(listening)} {}

  bool is_open() const { return listening_.get() >= 0; }
  const channel::Descriptor& listening() const { return listening_; }
  bool is_busy() const { return !visitors_.empty(); }
  void add_to(std::vector<pollfd>& waited_for) const;
  // Never waits for anybody. The text is made when somebody asks.
  void serve(const std::function<std::string()>& text);

 private:
  struct Visitor {
    channel::Descriptor socket;
    Clock::time_point until;
    std::string request{};
    std::string answer{};
  };
  static bool is_done_with(Visitor& visitor, const std::function<std::string()>& text);

  channel::Descriptor listening_;
  std::vector<Visitor> visitors_;
};

}  // namespace grus::server
