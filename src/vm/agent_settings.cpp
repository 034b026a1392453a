#include "vm/agent_settings.hpp"

#define TOML_ENABLE_FORMATTERS 0  // they would load the library of mathematics
#include <toml++/toml.h>

#include <filesystem>

#include "base/log.hpp"
#include "vm/lines.hpp"

namespace grus::vm {
namespace {

bool read(const toml::node& node, std::string& to) {
  const auto text = node.value_exact<std::string>();
  if (text) to = *text;
  return text.has_value();
}

bool read(const toml::node& node, std::vector<std::string>& to) {
  to.clear();
  const toml::array* const list = node.as_array();
  if (!list) return read(node, to.emplace_back());
  return std::all_of(list->begin(), list->end(), [&](const toml::node& one) { return read(one, to.emplace_back()); });
}

bool read(AgentSettings& settings, std::string_view key, const toml::node& node) {
  if (key == "port") return read(node, settings.port);
  if (key == "devices") return read(node, settings.devices);
  if (key == "device_files") return read(node, settings.device_files);
  if (key == "unload") return read(node, settings.unload);
  if (key == "load") return read(node, settings.load);
  if (key == "probe") return read(node, settings.probe);
  throw Failed{"there is no such setting"};
}

}  // namespace

AgentSettings read_agent_settings(const std::string& file) {
  AgentSettings settings;
  std::error_code error;
  if (file.empty() && !std::filesystem::exists(kAgentFile, error)) return settings;
  const std::string chosen = file.empty() ? kAgentFile : file;
  try {
    for (const auto& [key, node] : toml::parse_file(chosen)) {
      try {
        if (!read(settings, key.str(), node)) throw Failed{"it must be a text in quotes, or a list of them"};
      } catch (const Failed& failed) {
        throw Failed{
            fmt::format("{}:{}: {}: {}", chosen, key.source().begin.line, std::string{key.str()}, failed.what())};
      }
    }
  } catch (const toml::parse_error& wrong) {
    throw Failed{fmt::format("{}:{}: {}", chosen, wrong.source().begin.line, wrong.description())};
  }
  return settings;
}

}  // namespace grus::vm
