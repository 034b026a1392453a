#include "server/worker.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "executor/local.hpp"
#include "server/pass_socket.hpp"
#include "server/session.hpp"

namespace grus::server {
namespace {

// What kernels print goes to the client.
int capture_output() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  dup2(ends[1], STDOUT_FILENO);
  close(ends[1]);
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return ends[0];
}

}  // namespace

int run_worker(int control) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would look after it
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  std::signal(SIGINT, SIG_IGN);  // of the terminal that the server was started in
  std::signal(SIGPIPE, SIG_IGN);
  const int output = capture_output();
  // Never destroyed: the process ends instead, which gives everything back at once.
  auto* const executor = new LocalExecutor;
  for (std::uint32_t platform = 0; platform < executor->platforms().size(); ++platform)
    (void)executor->device_count(platform);
  channel::Descriptor client = receive_socket(control);
  close(control);
  if (client.get() < 0) return 0;  // the server is gone
  auto* const session = new Session{channel::Stream{std::move(client)}, *executor, output};
  start_thread("grus-output", [=] {
    pollfd ready{output, POLLIN, 0};
    while (poll(&ready, 1, -1) > 0) session->send_output();
  }).detach();
  const std::string why = session->run();
  log::info("worker", "{}: {}", getpid(), why);
  std::_Exit(0);
}

}  // namespace grus::server
