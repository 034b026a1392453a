// Programs of the system's that are run to their end.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace grus::vm {

struct Ran {
  int status = -1;   // as wait(2) has it
  std::string said;  // output and errors, in English
};

// The program finds the input at /dev/stdin, also as a file. `meanwhile` is called every now and then. It is apart from
// the terminal: a Ctrl-C is for us alone, and it can't ask for a password. Throws Failed if it can't be started.
Ran run(const std::vector<std::string>& program, const std::string& input = {},
        const std::function<void()>& meanwhile = {});

}  // namespace grus::vm
