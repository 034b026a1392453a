// What `grus serve` can be told, by options and in a file.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cli/size.hpp"
#include "server/serve.hpp"

namespace grus::cli {

Size half_of_memory();  // the host's

struct ServeSettings {
  std::vector<std::string> listen;
  std::string vendors;
  std::vector<std::string> devices;
  std::vector<std::string> users;
  unsigned sessions = server::kMostSessions;
  unsigned tenant_sessions = server::kMostSessions / 4;
  unsigned objects = 1U << 20U;
  unsigned build_limit = 600;
  Size output_limit{std::uint64_t{1} << 30U};
  Size memory;
  bool memory_shares = false;
  Size device_memory;
  Size swap = half_of_memory();
  std::vector<std::string> tenants;
  bool shares = false;
  unsigned time_limit = 60;
  std::string shared_cache;
  bool direct = true;
  unsigned grace = 10;
  unsigned drain = 0;
  std::string audit;
  std::string metrics;
  std::string keys;
  bool tls = false;
  bool sandbox = true;
};

void add_options(CLI::App& app, ServeSettings& settings);

// Takes from the file what the command line didn't say; without a file, from the user's own or the system's, if there
// is one. Returns which it was, or nothing. Throws Problem.
std::string read_settings(const std::string& file, const CLI::App& app, ServeSettings& settings);

// As such a file.
std::string text_of(ServeSettings settings);

}  // namespace grus::cli
