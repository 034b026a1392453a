// Which executor a session starts with: the drivers of this machine, or a server's if GRUS_GPU names one.
#include <cstdlib>

#include "base/log.hpp"
#include "executor/local.hpp"
#include "executor/remote.hpp"

namespace grus {
namespace {

Executor* choose() {
  const char* const gpu = std::getenv("GRUS_GPU");
  if (!gpu || !*gpu) return new LocalExecutor;
  const bool automatic = std::string_view{gpu} == "auto";
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
    return new LocalExecutor{LocalExecutor::kNoVendors};
  }
}

}  // namespace

Executor& starting_executor() {
  static Executor* const executor = choose();  // never destroyed: programs call OpenCL at exit
  return *executor;
}

}  // namespace grus
