#include "cli/serve_settings.hpp"

#define TOML_ENABLE_FORMATTERS 0  // they would load the library of mathematics
#include <toml++/toml.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "base/log.hpp"
#include "cli/problem.hpp"

namespace grus::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSystemFile = "/etc/grus/serve.toml";

using List = std::vector<std::string>;
using Value = std::variant<std::string*, List*, unsigned*, bool*, Size*>;

// One row makes the option, its help, and the key in the file.
struct Setting {
  const char* key;
  const char* option;
  const char* type;  // in the help
  Value value;
  const char* help;
};

std::vector<Setting> all_of(ServeSettings& s) {
  return {
      {"listen", "--listen", "ADDRESS", &s.listen,
       "unix:PATH or tcp:HOST:PORT, again for more; else a socket in the user's runtime folder"},
      {"vendors", "--vendors", "PATH", &s.vendors, "Drivers to offer, as for `grus run`"},
      {"devices", "--device", "TEXT", &s.devices,
       "Offer only devices that have TEXT in their name or in their platform's, again for more"},
      {"users", "--user", "NAME", &s.users,
       "Who may come through a Unix socket, besides this user and root: names or numbers, again for more"},
      {"sessions", "--sessions", "COUNT", &s.sessions, "Sessions at a time, at most"},
      {"tenant_sessions", "--tenant-sessions", "COUNT", &s.tenant_sessions,
       "Sessions of one tenant at a time, at most; over plain TCP, of one host"},
      {"objects", "--objects", "COUNT", &s.objects,
       "Objects that a session may have at a time: it is ended if it makes more; 0 for as many as it likes"},
      {"build_limit", "--build-limit", "SECONDS", &s.build_limit,
       "End a session one of whose builds takes longer than this; 0 for never"},
      {"output_limit", "--output-limit", "SIZE", &s.output_limit,
       "End a session whose kernels print more than this, in all; 1GiB unless given, 0 for as much as they like"},
      {"memory", "--memory", "SIZE", &s.memory,
       "What a tenant's sessions may have in buffers and images together, 2GiB say, which is what they are told their "
       "device has; else as much as there is"},
      {"memory_shares", "--memory-shares", "", &s.memory_shares,
       "Tell sessions that their device has the tenant's part of its memory, by weight, among those who are there when "
       "they begin"},
      {"device_memory", "--device-memory", "SIZE", &s.device_memory,
       "What sessions may use of the memory of each device; else 15/16 of it"},
      {"swap", "--swap", "SIZE", &s.swap,
       "Host memory for buffers that are moved out of a device's memory when that is full: of tenants that have more "
       "than their part first, and those used longest ago. They are packed where there is no room for them as they "
       "are. "
       "Half of the host's memory; 0 for none"},
      {"tenants", "--tenant", "NAME:weight=N,cap=PERCENT,memory=SIZE", &s.tenants,
       "A tenant's part of a device: in proportion to its weight (1), of its time no more than its cap (with "
       "--shares), "
       "and of memory no more than that, which counts instead of --memory; again for more. "
       "A tenant is a client certificate's name or a user; others are one each. `grus tenants` changes it"},
      {"shares", "--shares", "", &s.shares,
       "Share out devices' time among tenants; else whoever sends more commands has more"},
      {"time_limit", "--time-limit", "SECONDS", &s.time_limit,
       "With --shares: end a session one of whose commands takes longer than this while others wait for the device; 0 "
       "for "
       "never"},
      {"grace", "--grace", "SECONDS", &s.grace, "How long to wait for a client whose connection was lost"},
      {"drain", "--drain", "SECONDS", &s.drain, "How long sessions may go on when the server is to end"},
      {"shared_cache", "--shared-cache", "yes|no", &s.shared_cache,
       "Whether sessions find what drivers compiled for others before; else if nobody can come but this user and root"},
      {"direct", "!--no-direct", "", &s.direct,
       "Don't connect to other servers, where sessions that move there would send their memory straight away"},
      {"audit", "--audit", "FILE", &s.audit,
       "Append a line of JSON for everybody who comes, is refused, or leaves; else they are in the log "
       "(GRUS_LOG=info)"},
      {"metrics", "--metrics", "ADDRESS", &s.metrics,
       "Tell Prometheus what goes on, over HTTP: PORT on loopback, or HOST:PORT, where everybody can read who uses "
       "what"},
      {"keys", "--keys", "FOLDER", &s.keys,
       "The folder of the server's keys, made by `grus keys`; else GRUS_KEYS, ~/.config/grus/keys, or /etc/grus/keys"},
      {"tls", "--tls", "", &s.tls, "TLS on loopback, too, as it is if keys are named"},
      {"sandbox", "!--no-sandbox", "", &s.sandbox,
       "Don't confine workers, for a driver that needs more than the sandbox lets it do"},
  };
}

// Reads a node of the file; if it is of another kind, says what it must be.
struct FromFile {
  const toml::node& node;

  const char* operator()(std::string* to) const {
    const auto text = node.value_exact<std::string>();
    if (text) *to = *text;
    return text ? nullptr : "it must be a text, in quotes";
  }
  const char* operator()(List* to) const {
    to->clear();
    if (const toml::array* const list = node.as_array()) {
      for (const toml::node& one : *list) {
        if (!add(one, *to)) return "it must be a list of texts";
      }
      return nullptr;
    }
    return add(node, *to) ? nullptr : "it must be a text or a list of texts";
  }
  const char* operator()(unsigned* to) const {
    const auto number = node.value_exact<std::int64_t>();
    if (!number || *number < 0 || *number > std::numeric_limits<int>::max()) return "it must be a number, not below 0";
    *to = static_cast<unsigned>(*number);
    return nullptr;
  }
  const char* operator()(bool* to) const {
    const auto truth = node.value_exact<bool>();
    if (truth) *to = *truth;
    return truth ? nullptr : "it must be true or false";
  }
  const char* operator()(Size* to) const {
    const auto number = node.value_exact<std::int64_t>();
    const auto text = node.value_exact<std::string>();
    if (number && *number >= 0) {
      to->bytes = static_cast<std::uint64_t>(*number);
      return nullptr;
    }
    return text && read_size(*text, *to) ? nullptr : "it must be a size: 512MiB or 2GiB, in quotes, or bytes";
  }

 private:
  // Users can be numbers.
  static bool add(const toml::node& one, List& to) {
    if (const auto text = one.value_exact<std::string>()) {
      to.push_back(*text);
    } else if (const auto number = one.value_exact<std::int64_t>()) {
      to.push_back(std::to_string(*number));
    } else {
      return false;
    }
    return true;
  }
};

struct ToFile {
  std::string operator()(const std::string* text) const {
    std::string out;
    for (const char c : *text) {
      if (c == '"' || c == '\\') out += '\\';
      out += static_cast<unsigned char>(c) < ' ' ? fmt::format("\\u{:04x}", c) : std::string{c};
    }
    return fmt::format("\"{}\"", out);
  }
  std::string operator()(const List* list) const {
    std::string out;
    for (const auto& text : *list) out += (out.empty() ? "" : ", ") + (*this)(&text);
    return fmt::format("[{}]", out);
  }
  std::string operator()(const unsigned* number) const { return std::to_string(*number); }
  std::string operator()(const bool* truth) const { return *truth ? "true" : "false"; }
  std::string operator()(const Size* size) const { return fmt::format("\"{}\"", cli::text_of(*size)); }
};

std::string default_file() {
  const char* const configuration = std::getenv("XDG_CONFIG_HOME");
  const char* const home = std::getenv("HOME");
  fs::path own;
  if (configuration && *configuration) {
    own = fs::path{configuration} / "grus" / "serve.toml";
  } else if (home && *home) {
    own = fs::path{home} / ".config" / "grus" / "serve.toml";
  }
  std::error_code error;
  for (const fs::path& file : {own, fs::path{kSystemFile}}) {
    if (!file.empty() && fs::exists(file, error)) return file;
  }
  return {};
}

toml::table parse(const std::string& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) throw Problem{fmt::format("--config {}: no such file", file), kUsage};
  try {
    return toml::parse_file(file);
  } catch (const toml::parse_error& wrong) {
    throw Problem{fmt::format("{}:{}: {}", file, wrong.source().begin.line, wrong.description()), kUsage};
  }
}

}  // namespace

Size half_of_memory() {
  const auto pages = static_cast<std::uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  return {pages / 2 * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) >> 20U << 20U};
}

void add_options(CLI::App& app, ServeSettings& settings) {
  for (const Setting& setting : all_of(settings)) {
    CLI::Option* option = nullptr;
    if (const auto flag = std::get_if<bool*>(&setting.value)) {
      app.add_flag(setting.option, **flag, setting.help);
    } else if (const auto size = std::get_if<Size*>(&setting.value)) {
      const auto read = [to = *size, option = std::string{setting.option}](const std::string& text) {
        if (!read_size(text, *to)) throw CLI::ValidationError{option, text + " is no size: write 512MiB or 2GiB"};
      };
      option = app.add_option_function<std::string>(setting.option, read, setting.help);
    } else if (const auto text = std::get_if<std::string*>(&setting.value)) {
      option = app.add_option(setting.option, **text, setting.help);
    } else if (const auto list = std::get_if<List*>(&setting.value)) {
      option = app.add_option(setting.option, **list, setting.help);
    } else if (const auto number = std::get_if<unsigned*>(&setting.value)) {
      option = app.add_option(setting.option, **number, setting.help)->capture_default_str();
    }
    if (option) option->type_name(setting.type);
  }
}

std::string read_settings(const std::string& file, const CLI::App& app, ServeSettings& settings) {
  std::string chosen = file.empty() ? default_file() : file;
  if (chosen.empty()) return {};
  const std::vector<Setting> known = all_of(settings);
  for (const auto& [key, node] : parse(chosen)) {
    const auto refuse = [&, line = key.source().begin.line, name = std::string{key.str()}](std::string_view why) {
      throw Problem{fmt::format("{}:{}: {}: {}", chosen, line, name, why), kUsage};
    };
    const auto setting =
        std::find_if(known.begin(), known.end(), [name = key.str()](const Setting& one) { return one.key == name; });
    if (setting == known.end()) {
      refuse("there is no such setting");
      continue;
    }
    const std::string option = setting->option[0] == '!' ? setting->option + 1 : setting->option;
    if (app.get_option(option)->count() > 0) continue;
    if (const char* const why = std::visit(FromFile{node}, setting->value)) refuse(why);
  }
  return chosen;
}

std::string text_of(ServeSettings settings) {
  std::string out;
  for (const Setting& setting : all_of(settings))
    out += fmt::format("{} = {}\n", setting.key, std::visit(ToFile{}, setting.value));
  return out;
}

}  // namespace grus::cli
