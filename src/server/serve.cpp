#include "server/serve.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/log.hpp"
#include "server/pass_socket.hpp"

namespace grus::server {
namespace {

constexpr std::size_t kMostWorkers = 1024;
constexpr int kControl = 3;  // the worker's end of the socket

// A client of a Unix socket must be the server's own user, or root.
bool may_enter(const channel::Descriptor& client) {
  ucred peer{};
  socklen_t size = sizeof peer;
  sockaddr_storage name{};
  socklen_t name_size = sizeof name;
  if (getsockname(client.get(), reinterpret_cast<sockaddr*>(&name), &name_size) != 0) return false;
  if (name.ss_family != AF_UNIX) return true;  // who listens elsewhere than on loopback is refused before
  if (getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == geteuid();
}

// As systemd wants it of services with Type=notify.
void tell_systemd(const char* state) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (!path || std::strlen(path) >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const channel::Descriptor socket{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  (void)sendto(socket.get(), state, std::strlen(state), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
               length);
}

class Server {
 public:
  explicit Server(const ServeOptions& options) : options_{options} {
    for (const auto& address : options.listen) listening_.push_back(channel::listen_at(address));
    sigset_t handled;
    sigemptyset(&handled);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&handled, signal);
    sigprocmask(SIG_BLOCK, &handled, &before_);
    signals_ = channel::Descriptor{signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)};
  }

  int run() {
    start_worker();
    for (std::size_t index = 0; index < listening_.size(); ++index)
      fmt::print("listening at {}\n", channel::bound_at(listening_[index], options_.listen[index]).text());
    std::fflush(stdout);
    tell_systemd("READY=1");
    while (!ending_) {
      std::vector<pollfd> ready;
      for (const auto& socket : listening_) ready.push_back({socket.get(), POLLIN, 0});
      ready.push_back({signals_.get(), POLLIN, 0});
      if (poll(ready.data(), ready.size(), -1) < 0) continue;
      if (ready.back().revents) handle_signals();
      for (std::size_t index = 0; index < listening_.size(); ++index) {
        if (ready[index].revents) accept(listening_[index]);
      }
    }
    tell_systemd("STOPPING=1");
    for (const auto& address : options_.listen) {
      if (address.kind == channel::Address::Kind::unix_socket) unlink(address.path.c_str());
    }
    for (const pid_t worker : workers_) kill(worker, SIGTERM);
    return 0;
  }

 private:
  void start_worker() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
    channel::Descriptor mine{ends[0]};
    const channel::Descriptor workers{ends[1]};
    std::vector<char*> command;
    for (const auto& word : options_.worker) command.push_back(const_cast<char*>(word.c_str()));
    std::string control = std::to_string(kControl);
    command.push_back(control.data());
    command.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      sigprocmask(SIG_SETMASK, &before_, nullptr);
      if (workers.get() == kControl) {
        fcntl(kControl, F_SETFD, 0);
      } else {
        dup2(workers.get(), kControl);
      }
      execv(command[0], command.data());
      _exit(127);
    }
    if (child < 0) {
      log::error("serve", "a worker can't be started: {}", std::strerror(errno));
      return;
    }
    workers_.push_back(child);
    ready_ = std::move(mine);
  }

  void accept(const channel::Descriptor& listening) {
    const channel::Descriptor client = channel::accept_from(listening);
    if (client.get() < 0) return;
    if (!may_enter(client)) {
      log::warn("serve", "a client of another user was refused");
      return;
    }
    if (workers_.size() > kMostWorkers) {
      log::warn("serve", "a client was refused: there are {} sessions already", kMostWorkers);
      return;
    }
    // A worker that has died since it was started is replaced once; its client would have to wait for ever.
    for (int attempt = 0; attempt < 2; ++attempt) {
      const bool passed = ready_.get() >= 0 && pass_socket(ready_.get(), client);
      ready_.reset();
      if (passed) break;
      start_worker();
    }
    start_worker();
  }

  void handle_signals() {
    signalfd_siginfo signal{};
    while (read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
      if (signal.ssi_signo != SIGCHLD) ending_ = true;
    }
    int status = 0;
    for (pid_t worker = 0; (worker = waitpid(-1, &status, WNOHANG)) > 0;) {
      std::erase(workers_, worker);
      if (WIFSIGNALED(status)) log::warn("serve", "worker {} was ended by signal {}", worker, WTERMSIG(status));
    }
  }

  const ServeOptions& options_;
  std::vector<channel::Descriptor> listening_;
  channel::Descriptor signals_;
  channel::Descriptor ready_;  // the control socket of the worker that waits for a client
  std::vector<pid_t> workers_;
  sigset_t before_{};
  bool ending_ = false;
};

}  // namespace

int serve(const ServeOptions& options) { return Server{options}.run(); }

}  // namespace grus::server
