#include "cli/child.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <system_error>

namespace grus::cli {
namespace {

constexpr std::array kForwarded = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

std::system_error last_error(const char* what) { return {errno, std::generic_category(), what}; }

// What the child tells through a pipe that exec closes: nothing, or why exec failed.
int read_exec_error(int pipe_end) {
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(pipe_end, &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  close(pipe_end);
  return count == sizeof error ? error : 0;
}

Ended wait_and_forward(pid_t child, const sigset_t& waited_for) {
  for (;;) {
    siginfo_t info{};
    const int signal = sigwaitinfo(&waited_for, &info);
    if (signal == SIGCHLD) {
      int status = 0;
      if (waitpid(child, &status, WNOHANG) != child) continue;  // stopped or continued
      if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
      return {.exit_status = WEXITSTATUS(status)};
    }
    // What the terminal sends (si_code > 0) has reached the child too: it is in the same process group.
    if (signal > 0 && info.si_code <= 0) kill(child, signal);
  }
}

}  // namespace

int become(const std::vector<std::string>& program) {
  std::vector<char*> arguments;
  arguments.reserve(program.size() + 1);
  for (const std::string& argument : program) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return errno;
}

Ended run_to_end(const std::vector<std::string>& program) {
  int exec_pipe[2];
  if (pipe2(exec_pipe, O_CLOEXEC) != 0) throw last_error("pipe");

  // Signals are waited for, not handled: none can come between fork and the wait.
  sigset_t waited_for;
  sigset_t before;
  sigemptyset(&waited_for);
  sigaddset(&waited_for, SIGCHLD);
  for (const int signal : kForwarded) sigaddset(&waited_for, signal);
  sigprocmask(SIG_BLOCK, &waited_for, &before);
  // Where SIGCHLD is ignored, the child's status would be lost.
  const auto child_action_before = std::signal(SIGCHLD, SIG_DFL);

  const pid_t child = fork();
  if (child < 0) throw last_error("fork");
  if (child == 0) {
    std::signal(SIGCHLD, child_action_before);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    const int error = become(program);
    [[maybe_unused]] const auto written = write(exec_pipe[1], &error, sizeof error);
    _exit(EXIT_FAILURE);
  }
  close(exec_pipe[1]);
  const int exec_error = read_exec_error(exec_pipe[0]);
  Ended ended = wait_and_forward(child, waited_for);
  ended.exec_error = exec_error;
  return ended;
}

void die_by(int signal) {
  const rlimit no_core = {0, 0};  // the program has left one, if any
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(signal, SIG_DFL);
  sigset_t only_this;
  sigemptyset(&only_this);
  sigaddset(&only_this, signal);
  sigprocmask(SIG_UNBLOCK, &only_this, nullptr);
  raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace grus::cli
