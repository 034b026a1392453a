// Which executors a session starts with: the drivers of this machine, or those of the servers that GRUS_GPU names.
#include <cstdlib>
#include <sstream>

#include "base/log.hpp"
#include "executor/local.hpp"
#include "executor/remote.hpp"

namespace grus {
namespace {

// Null if there is none; `auto` is this user's server, and no complaint if it doesn't run.
Executor* connect(const std::string& gpu) {
  const bool automatic = gpu == "auto";
  bool is_there = true;
  try {
    const auto address = automatic ? channel::default_address() : channel::Address::parse(gpu);
    auto keys = channel::keys_for(address);
    is_there = false;
    auto socket = channel::connect_to(address);
    is_there = true;
    if (automatic && !channel::is_of_this_user(socket))
      throw channel::Lost{fmt::format("{} belongs to somebody else", address.text())};
    return new RemoteExecutor{channel::open_channel(std::move(socket), address, std::move(keys)), address.text()};
  } catch (const std::exception& error) {
    if (automatic) return new LocalExecutor;
    log::error("server", "{}{}", error.what(), is_there ? "" : "; is `grus serve` running there?");
    return nullptr;
  }
}

std::vector<Executor*> choose() {
  const char* const gpu = std::getenv("GRUS_GPU");
  if (!gpu || !*gpu) return {new LocalExecutor};
  std::vector<Executor*> executors;
  std::istringstream all{gpu};
  for (std::string one; std::getline(all, one, ',');) {
    if (Executor* const executor = connect(one)) executors.push_back(executor);
  }
  if (executors.empty()) executors.push_back(new LocalExecutor{LocalExecutor::kNoVendors});
  return executors;
}

}  // namespace

std::span<Executor* const> starting_executors() {
  static const auto* const executors = new std::vector{choose()};  // never destroyed: programs call OpenCL at exit
  return *executors;
}

}  // namespace grus
