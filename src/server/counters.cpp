#include "server/counters.hpp"

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "command/executor.hpp"

namespace grus::server {
namespace {

using json = nlohmann::ordered_json;

// By ObjectType
constexpr const char* kTypeNames[Counters::kTypes] = {"device",  "context", "queue",  "memory",
                                                      "sampler", "program", "kernel", "event"};

// The worker could write anything there.
template <std::size_t kSize>
std::string text(const char (&from)[kSize]) {
  std::string all{from, strnlen(from, kSize)};
  std::replace_if(
      all.begin(), all.end(), [](unsigned char c) { return c < ' ' && c != '\n'; }, '?');
  return all;
}

}  // namespace

json to_json(const Counters& counters) {
  json devices = json::array();
  std::istringstream lines{text(counters.devices)};
  for (std::string line; std::getline(lines, line);) devices.push_back(line);
  json objects = json::object();
  for (std::size_t type = 0; type < Counters::kTypes; ++type) objects[kTypeNames[type]] = counters.objects[type].load();
  json facts = {{"devices", devices},
                {"objects", objects},
                {"memory_bytes", counters.memory.load()},
                {"memory_peak_bytes", counters.memory_peak.load()},
                {"on_device_bytes", counters.on_device.load()},
                {"swapped_out_bytes", counters.swapped_out.load()},
                {"swap_used_bytes", counters.swap_used.load()},
                {"moved_out_bytes", counters.moved_out.load()},
                {"moved_in_bytes", counters.moved_in.load()},
                {"commands", counters.commands.load()},
                {"round_trips", counters.round_trips.load()},
                {"pages_in_bytes", counters.pages_in.load()},
                {"pages_out_bytes", counters.pages_out.load()},
                {"bytes_in", counters.bytes_in.load()},
                {"bytes_out", counters.bytes_out.load() + counters.bytes_shared.load()}};
  if (const auto way = static_cast<MoveStage::Way>(counters.move_way.load()); way != MoveStage::Way::none)
    facts["move"] = {{"way", way == MoveStage::Way::leaves ? "leaves" : "arrives"},
                     {"done_bytes", counters.move_done.load()},
                     {"all_bytes", counters.move_all.load()}};
  return facts;
}

std::string why_ended(const Counters& counters) { return text(counters.why); }

}  // namespace grus::server
