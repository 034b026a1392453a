// The option that names a server, for all subcommands that take one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "channel/address.hpp"

namespace grus::cli {

inline CLI::Validator is_server_address() {
  const auto check = [](const std::string& text) -> std::string {
    if (text == "auto") return {};
    try {
      (void)channel::Address::parse(text);
      return {};
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  return {check, ""};
}

inline void add_gpu_option(CLI::App& app, std::vector<std::string>& gpu) {
  app.add_option(
         "--gpu", gpu,
         "A server whose devices to use: unix:PATH, tcp:HOST:PORT, or auto for this user's if it runs; again for "
         "more of them; else GRUS_GPU")
      ->check(is_server_address())
      ->type_name("ADDRESS");
}

// As GRUS_GPU has it.
inline std::string listed(const std::vector<std::string>& gpu) {
  std::string list;
  for (const std::string& one : gpu) list += (list.empty() ? "" : ",") + one;
  return list;
}

}  // namespace grus::cli
