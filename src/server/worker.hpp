// The process behind one session: the vendor's driver, its compiler and its crashes stay inside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace grus::server {

struct WorkerOptions {
  std::vector<std::string> devices;  // only those that have one of these texts in their name or their platform's
  bool sandbox = true;
  bool ready_contexts = true;  // of devices with memory of their own, whose drivers need long for one
  std::string caches;          // the folder for what drivers cache, which no other worker can see; empty: the user's
  std::size_t objects = 0;     // of a session, at most; 0: as many as there are names for
  unsigned build_limit = 0;    // seconds; 0: none
  std::uint64_t output_limit = 0;  // bytes that kernels print; 0: none
};

// Loads the drivers, waits for a client's socket on the control socket, and serves that client until it is gone.
// Returns the exit status.
int run_worker(int control, const WorkerOptions& options);

}  // namespace grus::server
