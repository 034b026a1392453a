// The options that name a server, for all subcommands that take one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "channel/address.hpp"

namespace grus::cli {

struct GpuOptions {
  std::vector<std::string> gpu;
  std::string keys;
};

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

// As GRUS_GPU has it.
inline std::string listed(const std::vector<std::string>& gpu) {
  std::string list;
  for (const std::string& one : gpu) list += (list.empty() ? "" : ",") + one;
  return list;
}

inline void add_keys_option(CLI::App& app, GpuOptions& options) {
  app.add_option("--keys", options.keys,
                 "The folder of the keys for that server, made by `grus keys`; else GRUS_KEYS or ~/.config/grus/keys")
      ->type_name("FOLDER");
}

inline void add_gpu_options(CLI::App& app, GpuOptions& options) {
  app.add_option(
         "--gpu", options.gpu,
         "A server whose devices to use: unix:PATH, tcp:HOST:PORT, in a guest vsock:host:PORT, virtio-serial: or "
         "ivshmem: (see `grus relay`), or auto for this user's if it runs; again for more of them; else GRUS_GPU")
      ->check(is_server_address())
      ->type_name("ADDRESS");
  add_keys_option(app, options);
}

// For those that ask a server about itself.
inline void add_server_options(CLI::App& app, GpuOptions& options, const std::string& how_many) {
  app.add_option("--gpu", options.gpu, "The server: unix:PATH or tcp:HOST:PORT, " + how_many)
      ->check(is_server_address())
      ->type_name("ADDRESS");
  add_keys_option(app, options);
}

inline void set_gpu_environment(const GpuOptions& options) {
  if (!options.gpu.empty()) setenv("GRUS_GPU", listed(options.gpu).c_str(), /*overwrite=*/1);
  if (!options.keys.empty()) setenv("GRUS_KEYS", std::filesystem::absolute(options.keys).c_str(), /*overwrite=*/1);
}

}  // namespace grus::cli
