// One request at a time changes a session. Exit waits until it is given up: it destroys what drivers keep, while
// another thread may be inside them, or loading one.
#pragma once

#include <mutex>

namespace grus::move {

class UnderWay {
 public:
  UnderWay();  // throws Refused if there is another

 private:
  std::unique_lock<std::timed_mutex> only_;
};

// To be called in a thread of the program's.
void wait_at_exit();

bool is_exiting();  // so whatever is under way is to be given up

}  // namespace grus::move
