// Executors by name: what GRUS_GPU and `grus move --to` say.
#pragma once

#include <memory>
#include <string>

#include "command/executor.hpp"

namespace grus {

// The drivers of this machine for "local", else those of a server. Throws, with what to do about it.
std::unique_ptr<Executor> open_executor(const std::string& where);

// Unloads the drivers that the executors have in this process; nobody must be using these. Says of each driver that
// stays loaded why.
std::vector<std::string> unload_drivers(std::span<Executor* const> unused);

}  // namespace grus
