#include "faults/support/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifdef __SANITIZE_ADDRESS__
// Programs that release nothing are what these tests are about.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

namespace grus::test {
namespace {

using Clock = std::chrono::steady_clock;

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left > 0 ? static_cast<int>(left) : 0;
}

struct Pipe {
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  }
  ~Pipe() {
    close(ends[0]);
    close_writing();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_writing() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
  int ends[2];
};

bool read_some(int from, std::string& into) {
  std::array<char, 4096> part;
  const ssize_t size = read(from, part.data(), part.size());
  if (size > 0) into.append(part.data(), static_cast<std::size_t>(size));
  return size > 0;
}

// Until the process ends, not until its pipes close: somebody else may have inherited them.
void read_until_ended(int process, Pipe& output, Pipe& errors, Clock::time_point deadline, Ended& ended) {
  const int process_end = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  std::array<pollfd, 3> waiting{
      pollfd{process_end, POLLIN, 0}, {output.ends[0], POLLIN, 0}, {errors.ends[0], POLLIN, 0}};
  for (;;) {
    const int ready = poll(waiting.data(), waiting.size(), milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) ended.in_time = false;
    if (waiting[1].revents && !read_some(output.ends[0], ended.output)) waiting[1].fd = -1;
    if (waiting[2].revents && !read_some(errors.ends[0], ended.errors)) waiting[2].fd = -1;
    if (ready == 0 || (waiting[0].revents && !(waiting[1].revents & POLLIN) && !(waiting[2].revents & POLLIN))) break;
  }
  close(process_end);
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const Ended& ended) {
  if (!ended.in_time) {
    stream << "it hung, and was killed";
  } else if (ended.signal != 0) {
    stream << "ended by signal " << ended.signal << " (" << strsignal(ended.signal) << ")";
  } else {
    stream << "exit status " << ended.status;
  }
  return stream << "\n--- output:\n" << ended.output << "--- errors:\n" << ended.errors << "---";
}

Ended in_child(const std::function<void()>& body, std::chrono::milliseconds limit) {
  Pipe output;
  Pipe errors;
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the test itself is killed
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(output.ends[1], STDOUT_FILENO);
    dup2(errors.ends[1], STDERR_FILENO);
    body();
    std::exit(0);
  }
  output.close_writing();
  errors.close_writing();
  Ended ended;
  read_until_ended(child, output, errors, Clock::now() + limit, ended);
  kill(-child, SIGKILL);  // whatever it has left behind, and itself if it hangs
  if (!ended.in_time) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  return ended;
}

void become(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  std::perror(arguments[0]);
  _exit(127);
}

void require(bool holds, std::string_view what, std::source_location where) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: wrong: %.*s\n", where.file_name(), static_cast<unsigned>(where.line()),
               static_cast<int>(what.size()), what.data());
  _exit(kWrong);
}

bool ended_well(int process, std::chrono::milliseconds limit) {
  const int process_end = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  const auto deadline = Clock::now() + limit;
  pollfd waiting{process_end, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&waiting, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  close(process_end);
  if (ready == 0) kill(process, SIGKILL);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (ready == 0) std::fprintf(stderr, "process %d hung\n", process);
  if (ready != 0 && status != 0) std::fprintf(stderr, "process %d ended with wait status 0x%x\n", process, status);
  return ready != 0 && status == 0;
}

}  // namespace grus::test
