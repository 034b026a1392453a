// A session's own socket in the user's runtime folder, by which `grus move` and the like reach it. Requests are a line
// of JSON; answers are lines: progress, and last the outcome.
#pragma once

#include <string>

namespace grus::move {

// Starts the thread that listens. Says nothing if it can't: the program runs all the same, and can't be moved.
void start_control();

}  // namespace grus::move
