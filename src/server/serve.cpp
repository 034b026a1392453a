#include "server/serve.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/log.hpp"
#include "channel/pass.hpp"
#include "server/handover.hpp"

namespace grus::server {
namespace {

constexpr std::size_t kMostWorkers = 1024;
constexpr int kControl = 3;  // the worker's end of the socket

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{10};  // with who connects and says nothing
constexpr std::size_t kMostGreeting = 256;

// Who has connected and has not said yet what for, or has not seen yet why they are refused.
struct Greeting {
  channel::Descriptor socket;
  channel::Security security;
  Clock::time_point until;
  channel::Preamble preamble;
  std::size_t received = 0;
  bool is_refused = false;
};

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

struct Worker {
  pid_t process = 0;
  std::uint64_t session = 0;  // 0: it waits for a client
  channel::Descriptor control;
};

class Server {
 public:
  explicit Server(const ServeOptions& options) : options_{options} {
    for (const auto& place : options.listen) listening_.push_back(channel::listen_at(place.address));
    sigset_t handled;
    sigemptyset(&handled);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&handled, signal);
    sigprocmask(SIG_BLOCK, &handled, &before_);
    signals_ = channel::Descriptor{signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)};
  }

  int run() {
    start_worker();
    for (std::size_t index = 0; index < listening_.size(); ++index)
      fmt::print("listening at {}\n", channel::bound_at(listening_[index], options_.listen[index].address).text());
    std::fflush(stdout);
    tell_systemd("READY=1");
    while (!ending_) {
      std::vector<pollfd> ready;
      ready.push_back({signals_.get(), POLLIN, 0});
      for (const auto& socket : listening_) ready.push_back({socket.get(), POLLIN, 0});
      for (const auto& greeting : greetings_) ready.push_back({greeting.socket.get(), POLLIN, 0});
      if (poll(ready.data(), ready.size(), greetings_.empty() ? -1 : 1000) < 0) continue;
      if (ready[0].revents) handle_signals();
      std::erase_if(greetings_, [](Greeting& greeting) { return greeting.until < Clock::now(); });
      for (std::size_t index = 0; index < listening_.size(); ++index) {
        if (ready[index + 1].revents) accept(listening_[index], options_.listen[index].security);
      }
      greet();
    }
    tell_systemd("STOPPING=1");
    for (const auto& [address, security] : options_.listen) {
      if (address.kind == channel::Address::Kind::unix_socket) unlink(address.path.c_str());
    }
    for (const Worker& worker : workers_) kill(worker.process, SIGTERM);
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
    workers_.push_back({child, 0, std::move(mine)});
  }

  void accept(const channel::Descriptor& listening, channel::Security security) {
    channel::Descriptor client = channel::accept_from(listening);
    if (client.get() < 0) return;
    // Over TCP, a worker finds out who it is.
    if (channel::is_unix(client) && !channel::is_of_this_user(client)) {
      log::warn("serve", "a client of another user was refused");
      return;
    }
    if (workers_.size() > kMostWorkers || greetings_.size() >= kMostGreeting) {
      log::warn("serve", "a client was refused: there are {} sessions already", workers_.size() - 1);
      return;
    }
    greetings_.push_back({std::move(client), security, Clock::now() + kPatience, {}});
  }

  void greet() {
    for (Greeting& greeting : greetings_) {
      if (greeting.is_refused) {
        char rest[4096];
        const ssize_t size = recv(greeting.socket.get(), rest, sizeof rest, MSG_DONTWAIT);
        if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) greeting.socket.reset();
        continue;
      }
      auto* const bytes = reinterpret_cast<std::byte*>(&greeting.preamble);
      const ssize_t received = recv(greeting.socket.get(), bytes + greeting.received,
                                    sizeof greeting.preamble - greeting.received, MSG_DONTWAIT);
      if (received < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      greeting.received += static_cast<std::size_t>(std::max<ssize_t>(received, 0));
      if (received > 0 && greeting.received < sizeof greeting.preamble) continue;
      if (received > 0 && greeting.preamble.magic == channel::kMagic) handle(greeting);
      if (!greeting.is_refused) greeting.socket.reset();
    }
    std::erase_if(greetings_, [](const Greeting& greeting) { return greeting.socket.get() < 0; });
  }

  void handle(Greeting& greeting) {
    if (greeting.preamble.security != greeting.security) {
      const bool wants_tls = greeting.security == channel::Security::tls;
      log::warn("serve", "{} was refused: it {}", channel::other_side_of(greeting.socket),
                wants_tls ? "doesn't use TLS" : "uses TLS, which only --keys or --tls offers here");
      refuse(greeting,
             channel::Welcome{.refusal = wants_tls ? channel::Refusal::wants_tls : channel::Refusal::has_no_tls});
    } else if (greeting.preamble.purpose == channel::Preamble::Purpose::resume) {
      resume_session(greeting);
    } else {
      start_session(greeting);
    }
  }

  // What they still send is taken first: unread, it would keep the answer from coming.
  template <typename Answer>
  static void refuse(Greeting& greeting, const Answer& answer) {
    (void)!send(greeting.socket.get(), &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(greeting.socket.get(), SHUT_WR);
    greeting.is_refused = true;
  }

  bool hand_over(const Greeting& greeting, const Worker& worker) const {
    const int client = greeting.socket.get();
    const Handover what{greeting.preamble, worker.session, static_cast<std::uint64_t>(options_.grace.count())};
    return channel::pass(worker.control.get(), what, {&client, 1});
  }

  // A worker that has died since it was started is replaced once; its client would have to wait for ever.
  void start_session(const Greeting& greeting) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto ready =
          std::find_if(workers_.begin(), workers_.end(), [](const auto& one) { return one.session == 0; });
      if (ready != workers_.end()) {
        (void)!getrandom(&ready->session, sizeof ready->session, 0);
        if (hand_over(greeting, *ready)) break;
      }
      start_worker();
    }
    start_worker();
  }

  void resume_session(Greeting& greeting) const {
    for (const Worker& worker : workers_) {
      if (worker.session == greeting.preamble.session && worker.session != 0 && hand_over(greeting, worker)) return;
    }
    if (greeting.security == channel::Security::plain) {
      refuse(greeting, channel::Resumed{});
    } else {
      refuse(greeting, channel::Welcome{.refusal = channel::Refusal::has_no_such_session});
    }
  }

  void handle_signals() {
    signalfd_siginfo signal{};
    while (read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
      if (signal.ssi_signo != SIGCHLD) ending_ = true;
    }
    int status = 0;
    for (pid_t worker = 0; (worker = waitpid(-1, &status, WNOHANG)) > 0;) {
      std::erase_if(workers_, [&](const Worker& one) { return one.process == worker; });
      if (WIFSIGNALED(status)) log::warn("serve", "worker {} was ended by signal {}", worker, WTERMSIG(status));
    }
  }

  const ServeOptions& options_;
  std::vector<channel::Descriptor> listening_;
  std::vector<Greeting> greetings_;
  channel::Descriptor signals_;
  std::vector<Worker> workers_;
  sigset_t before_{};
  bool ending_ = false;
};

}  // namespace

int serve(const ServeOptions& options) { return Server{options}.run(); }

}  // namespace grus::server
