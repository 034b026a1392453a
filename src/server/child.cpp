#include "server/child.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.hpp"

namespace grus::server {
namespace {

constexpr int kControl = 3;  // the child's end of the socket

}  // namespace

std::optional<Child> start_child(const std::vector<std::string>& command, const sigset_t& signals) {
  int ends[2] = {-1, -1};
  const bool has_ends = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0;
  channel::Descriptor mine{ends[0]};
  const channel::Descriptor its{ends[1]};
  std::vector<char*> words;
  words.reserve(command.size() + 2);
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  std::string control = std::to_string(kControl);
  words.push_back(control.data());
  words.push_back(nullptr);
  const pid_t process = has_ends ? fork() : -1;
  if (process == 0) {
    sigprocmask(SIG_SETMASK, &signals, nullptr);
    if (its.get() == kControl) {
      fcntl(kControl, F_SETFD, 0);
    } else {
      dup2(its.get(), kControl);
    }
    execv(words[0], words.data());
    _exit(127);
  }
  if (process > 0) return Child{process, std::move(mine)};
  log::error("serve", "{} {} can't be started: {}", command[0], command[1], std::strerror(errno));
  return std::nullopt;
}

}  // namespace grus::server
