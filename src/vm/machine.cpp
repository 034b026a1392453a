#include "vm/machine.hpp"

#define TOML_ENABLE_FORMATTERS 0  // they would load the library of mathematics
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "base/log.hpp"
#include "vm/agent.hpp"

namespace grus::vm {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr const char* kSystemFile = "/etc/grus/vms.toml";
constexpr auto kToSayHello = 5s;
constexpr auto kMostSilence = 10 * kSignOfLife;
constexpr auto kUntilNextTry = 100ms;

json value_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<std::int64_t>()) return *number;
  if (const auto truth = node.value_exact<bool>()) return *truth;
  throw Failed{"it must be a text, a number, or true or false"};
}

void read_gpu(Machine& machine, const toml::node& node) {
  if (const auto xml = node.value_exact<std::string>()) {
    machine.gpu_xml = *xml;
    return;
  }
  const toml::table* const arguments = node.as_table();
  if (!arguments) throw Failed{"it must be a table of device_add's arguments, or libvirt's XML in quotes"};
  for (const auto& [name, value] : *arguments) machine.gpu[std::string{name.str()}] = value_of(value);
  const auto is_text = [&](const char* name) { return machine.gpu.contains(name) && machine.gpu[name].is_string(); };
  if (!is_text("driver") || !is_text("id")) throw Failed{"it must have a driver and an id"};
}

void read(Machine& machine, std::string_view key, const toml::node& node) {
  const std::map<std::string_view, std::string*> texts{{"qmp", &machine.qmp},           {"libvirt", &machine.libvirt},
                                                       {"domain", &machine.domain},     {"agent", &machine.agent},
                                                       {"incoming", &machine.incoming}, {"proxy", &machine.proxy}};
  if (key == "gpu") return read_gpu(machine, node);
  const auto text = texts.find(key);
  if (text == texts.end()) throw Failed{"there is no such setting"};
  const auto value = node.value_exact<std::string>();
  if (!value) throw Failed{"it must be a text, in quotes"};
  *text->second = *value;
}

// "qemu+ssh://host-b/system" does.
bool names_a_host(std::string_view uri) {
  const std::size_t slashes = uri.find("://");
  return slashes != std::string_view::npos && !uri.substr(slashes + 3).starts_with('/');
}

// What settings of a machine have to do with each other.
void check(Machine& machine) {
  if (machine.qmp.empty() == machine.libvirt.empty())
    throw Failed{"it must have either qmp, the path of QEMU's socket, or libvirt, a URI"};
  if (machine.libvirt.empty()) {
    if (!machine.gpu_xml.empty()) throw Failed{"its gpu must be a table of device_add's arguments"};
    return;
  }
  if (machine.domain.empty()) machine.domain = machine.name;
  if (machine.is_given_card() && machine.gpu_xml.find(kCardAlias) == std::string::npos)
    throw Failed{fmt::format("its gpu must be libvirt's XML, with <alias name='{}'/>", kCardAlias)};
  if (machine.agent.empty() && names_a_host(machine.libvirt))
    throw Failed{"it must have agent, the path of the agent's socket here: `ssh -L` brings it from another host"};
}

Machine read_machine(const std::string& file, const std::string& name, const toml::node& node) {
  const toml::table* const table = node.as_table();
  if (!table)
    throw Failed{fmt::format("{}:{}: {}: it must be a table, [{}]", file, node.source().begin.line, name, name)};
  Machine machine;
  machine.name = name;
  for (const auto& [key, value] : *table) {
    try {
      read(machine, key.str(), value);
    } catch (const Failed& failed) {
      throw Failed{fmt::format("{}:{}: {}: {}", file, key.source().begin.line, std::string{key.str()}, failed.what())};
    }
  }
  try {
    check(machine);
  } catch (const Failed& failed) {
    throw Failed{fmt::format("{}: {}: {}", file, name, failed.what())};
  }
  return machine;
}

// A guest may say anything. What is shown mustn't steer a terminal, and what is used must be of its kind.
std::string text_of(const json& told) {
  if (!told.is_string()) return {};
  auto text = told.get<std::string>();
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
  return text;
}

std::string text_in(const json& told, const char* key) {
  const auto found = told.find(key);
  return found == told.end() ? "" : text_of(*found);
}

double number_in(const json& told, const char* key) {
  const auto found = told.find(key);
  return found != told.end() && found->is_number() ? found->get<double>() : 0.0;
}

json list_in(const json& told, const char* key, const std::function<json(const json&)>& one_of) {
  json list = json::array();
  const auto found = told.find(key);
  if (found == told.end() || !found->is_array()) return list;
  for (const json& one : *found) {
    if (json value = one_of(one); !value.is_null()) list.push_back(std::move(value));
  }
  return list;
}

json session_in(const json& told) {
  if (!told.is_object()) return {};
  return {{"pid", static_cast<std::int64_t>(number_in(told, "pid"))},
          {"program", text_in(told, "program")},
          {"at", text_in(told, "at")},
          {"from", text_in(told, "from")},
          {"ok", told.contains("ok") && told["ok"] == true},
          {"error", text_in(told, "error")},
          {"no_room", told.contains("no_room") && told["no_room"] == true},
          {"stop_seconds", number_in(told, "stop_seconds")},
          {"stays_loaded", list_in(told, "stays_loaded", text_of)}};
}

json step_in(const json& told) {
  if (!told.is_object()) return {};
  const std::string side = text_in(told, "side");
  return {{"side", side.empty() ? "guest" : side},
          {"step", text_in(told, "step")},
          {"start", number_in(told, "start")},
          {"seconds", number_in(told, "seconds")}};
}

json answer_in(const json& told) {
  return {{"ok", told.contains("ok") && told["ok"] == true},
          {"error", text_in(told, "error")},
          {"version", text_in(told, "version")},
          {"programs", list_in(told, "programs", session_in)},
          {"sessions", list_in(told, "sessions", session_in)},
          {"steps", list_in(told, "steps", step_in)}};
}

}  // namespace

std::string default_machines_file() {
  const char* const configuration = std::getenv("XDG_CONFIG_HOME");
  const char* const home = std::getenv("HOME");
  fs::path own;
  if (configuration && *configuration) own = fs::path{configuration} / "grus" / "vms.toml";
  if (own.empty() && home && *home) own = fs::path{home} / ".config" / "grus" / "vms.toml";
  std::error_code error;
  return !own.empty() && fs::exists(own, error) ? own.string() : kSystemFile;
}

std::map<std::string, Machine> read_machines(const std::string& file) {
  std::error_code error;
  if (!fs::exists(file, error))
    throw Failed{fmt::format("{}: no such file; it says where virtual machines are: see docs/vm.md", file)};
  std::map<std::string, Machine> machines;
  try {
    for (const auto& [key, node] : toml::parse_file(file)) {
      const std::string name{key.str()};
      machines.emplace(name, read_machine(file, name, node));
    }
  } catch (const toml::parse_error& wrong) {
    throw Failed{fmt::format("{}:{}: {}", file, wrong.source().begin.line, wrong.description())};
  }
  return machines;
}

json Agent::exchange(json request, Clock::time_point until) {
  if (socket_.empty()) throw Gone{"the virtual machine's file names no socket of an agent"};
  if (!lines_) lines_.emplace(connect_lines(socket_));
  static std::mt19937_64 random{std::random_device{}()};
  const auto id = static_cast<std::uint32_t>(random());
  request["id"] = id;
  try {
    lines_->send(request);
    while (auto answer = lines_->receive(std::min(until, Clock::now() + kMostSilence))) {
      if (answer->contains("ok") && answer->contains("id") && (*answer)["id"] == id) return answer_in(*answer);
    }
  } catch (const Gone&) {
    lines_.reset();
    throw;
  }
  throw Gone{fmt::format("{}: the guest's agent doesn't answer; is `grus agent` running there?", socket_)};
}

json Agent::wait_until_there(Clock::time_point until) {
  for (;;) {
    try {
      return exchange({{"command", "hello"}}, std::min(until, Clock::now() + kToSayHello));
    } catch (const std::exception&) {  // it starts, or arrives, or its QEMU does
      if (Clock::now() > until) throw;
      std::this_thread::sleep_for(kUntilNextTry);
    }
  }
}

json Agent::ask(Timeline& timeline, json request, std::chrono::seconds limit) {
  const auto start = Clock::now();
  json answer = exchange(std::move(request), start + limit);
  timeline.add("guest", answer.value("steps", json::array()), start);
  if (answer.value("ok", false)) return answer;
  const std::string why = fmt::format("in the guest: {}", answer.value("error", ""));
  const json& sessions = answer["sessions"];
  const auto fails = [](const json& one) { return !one.value("ok", false); };
  const auto has_room = [&](const json& one) { return fails(one) && !one.value("no_room", false); };
  if (std::any_of(sessions.begin(), sessions.end(), fails) && std::none_of(sessions.begin(), sessions.end(), has_room))
    throw NoRoom{why};
  throw Failed{why};
}

}  // namespace grus::vm
