// Which executors a session starts with: the drivers of this machine, or those of the servers that GRUS_GPU names.
#include "executor/starting.hpp"

#include <cstdlib>
#include <future>
#include <sstream>

#include "base/log.hpp"
#include "command/callbacks.hpp"
#include "executor/local.hpp"
#include "executor/remote.hpp"

namespace grus {
namespace {

std::unique_ptr<Executor> connect(const channel::Address& address, bool must_be_own) {
  auto keys = channel::keys_for(address);
  auto socket = channel::connect_to(address);
  if (must_be_own && !channel::is_of_this_user(socket))
    throw channel::Lost{fmt::format("{} belongs to somebody else", address.text())};
  const auto security = keys ? channel::Security::tls : channel::Security::plain;
  return std::make_unique<RemoteExecutor>(channel::open_channel(std::move(socket), address, std::move(keys)),
                                          address.text(), security);
}

// Null if there is none; `auto` is this user's server, and no complaint if it doesn't run.
std::unique_ptr<Executor> start(const std::string& gpu) {
  try {
    return gpu == "auto" ? connect(channel::default_address(), true) : open_executor(gpu);
  } catch (const std::exception& error) {
    if (gpu == "auto") return open_executor("local");
    log::error("server", "{}", error.what());
    return nullptr;
  }
}

std::vector<Executor*> choose() {
  const char* const gpu = std::getenv("GRUS_GPU");
  if (!gpu || !*gpu) return {new LocalExecutor};
  std::vector<Executor*> executors;
  std::istringstream all{gpu};
  for (std::string one; std::getline(all, one, ',');) {
    if (auto executor = start(one)) executors.push_back(executor.release());
  }
  if (executors.empty()) executors.push_back(new LocalExecutor{LocalExecutor::kNoVendors});
  return executors;
}

}  // namespace

std::unique_ptr<Executor> open_executor(const std::string& where) {
  if (where == "local") return std::make_unique<LocalExecutor>();
  return connect(channel::Address::parse(where), false);
}

std::vector<std::string> unload_drivers(std::span<Executor* const> unused) {
  for (Executor* const executor : unused) {
    auto* const local = dynamic_cast<LocalExecutor*>(executor);
    if (local && !local->let_drivers_go()) return {"the drivers stay loaded: one still has work"};
  }
  // Memory for mappings is released behind the program's callbacks, one of which may wait for commands.
  const auto released = std::make_shared<std::promise<void>>();
  callbacks::post([released] { released->set_value(); });
  if (released->get_future().wait_for(std::chrono::seconds{2}) != std::future_status::ready)
    return {"the drivers stay loaded: a callback of the program's takes long"};
  return Vendor::unload_shared();
}

std::span<Executor* const> starting_executors() {
  static const auto* const executors = new std::vector{choose()};  // never destroyed: programs call OpenCL at exit
  return *executors;
}

}  // namespace grus
