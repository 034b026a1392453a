// What was done when, at either side of a virtual machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "vm/lines.hpp"

namespace grus::vm {

class Timeline {
 public:
  explicit Timeline(std::string side = "host") : side_{std::move(side)} {}

  // Carries the step out and notes how long it took, whether or not it succeeds.
  template <typename Body>
  auto step(const std::string& name, Body body) {
    const Noted noted{*this, name};
    return body();
  }
  // Steps that the other side tells of, which were counted from that moment on.
  void add(const std::string& side, const json& steps, Clock::time_point from);
  void add(const std::string& side, const std::string& name, Clock::time_point start, Clock::time_point end);

  // In seconds since the timeline began, sorted by their start.
  json steps() const;
  double seconds_since_epoch() const;  // when it began
  void on_step(std::function<void(const std::string&)> told) { told_ = std::move(told); }

 private:
  struct Noted {
    Noted(Timeline& its_timeline, std::string its_name) : timeline{its_timeline}, name{std::move(its_name)} {
      if (timeline.told_) timeline.told_(name);
    }
    ~Noted() { timeline.add(timeline.side_, name, start, Clock::now()); }
    Noted(const Noted&) = delete;
    Noted& operator=(const Noted&) = delete;
    Timeline& timeline;
    std::string name;
    Clock::time_point start = Clock::now();
  };
  double since_begin(Clock::time_point time) const { return std::chrono::duration<double>{time - begin_}.count(); }

  std::string side_;
  Clock::time_point begin_ = Clock::now();
  std::chrono::system_clock::time_point begin_by_calendar_ = std::chrono::system_clock::now();
  std::vector<json> steps_;
  std::function<void(const std::string&)> told_;
};

// As chrome://tracing reads it.
json trace_of(const json& steps);

}  // namespace grus::vm
