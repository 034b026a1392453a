// The process behind one session: the vendor's driver, its compiler and its crashes stay inside it.
#pragma once

namespace grus::server {

// Loads the drivers, waits for a client's socket on the control socket, and serves that client until it is gone.
// Returns the exit status.
int run_worker(int control);

}  // namespace grus::server
