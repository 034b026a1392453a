// What a worker can't do any more, nor what it starts: a client that finds a hole in a driver is then in a process that
// can reach no network, no other process, and none of the system's own knobs. Drivers and their compilers
// still can do what they need: open device files, write into their cache, run a linker.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace grus::server {

// Empty if the system can do it, else what is missing.
std::string why_no_sandbox();

// For this process, and for all that it starts. To be called while there is one thread. Throws std::runtime_error.
void enter_sandbox();
// From here on no file in these folders can be read or written, but those in its own folder, and no memory or open file
// of a process that isn't in here, too: where the kernel has Landlock, of version 2. Nor what others put beside such a
// folder, or beside one that it is in. After enter_sandbox().
void hide(std::span<const std::filesystem::path> folders, const std::filesystem::path& own = {});
// From here on no file can become large. Not before shared memory is made, whose file is as large as it may ever
// become.
void limit_files();

}  // namespace grus::server
