#include "vm/timeline.hpp"

#include <algorithm>
#include <map>

namespace grus::vm {

void Timeline::add(const std::string& side, const std::string& name, Clock::time_point start, Clock::time_point end) {
  steps_.push_back({{"side", side},
                    {"step", name},
                    {"start", since_begin(start)},
                    {"seconds", std::chrono::duration<double>{end - start}.count()}});
}

void Timeline::add(const std::string& side, const json& steps, Clock::time_point from) {
  for (const json& one : steps) {
    if (!one.is_object()) continue;
    steps_.push_back({{"side", one.value("side", side)},
                      {"step", one.value("step", "")},
                      {"start", since_begin(from) + one.value("start", 0.0)},
                      {"seconds", one.value("seconds", 0.0)}});
  }
}

json Timeline::steps() const {
  std::vector<json> sorted = steps_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const json& a, const json& b) { return a["start"].get<double>() < b["start"].get<double>(); });
  return sorted;
}

double Timeline::seconds_since_epoch() const {
  return std::chrono::duration<double>{begin_by_calendar_.time_since_epoch()}.count();
}

json trace_of(const json& steps) {
  json events = json::array();
  std::map<std::string, int> sides;
  for (const json& step : steps) {
    const auto [side, is_new] = sides.try_emplace(step["side"].get<std::string>(), static_cast<int>(sides.size()) + 1);
    if (is_new) {
      events.push_back(
          {{"name", "process_name"}, {"ph", "M"}, {"pid", side->second}, {"args", {{"name", side->first}}}});
    }
    events.push_back({{"name", step["step"]},
                      {"ph", "X"},
                      {"pid", side->second},
                      {"tid", 1},
                      {"ts", 1e6 * step["start"].get<double>()},
                      {"dur", 1e6 * step["seconds"].get<double>()}});
  }
  return {{"traceEvents", events}};
}

}  // namespace grus::vm
