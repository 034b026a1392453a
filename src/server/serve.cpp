#include "server/serve.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "channel/pass.hpp"
#include "server/door.hpp"
#include "server/metrics.hpp"
#include "server/workers.hpp"

namespace grus::server {
namespace {

using json = nlohmann::ordered_json;

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{10};      // with who connects and isn't let in yet
constexpr std::chrono::seconds kPatienceAtEnd{5};  // with workers that were told to end
constexpr std::size_t kMostGreeting = 256;
constexpr int kMostRefusals = 20;  // that are noted in a second: whoever comes again and again fills no disk
constexpr rlim_t kManyFiles = 16384;

// Who has connected and has not said yet what for, is at the door, or has not taken yet what was answered.
struct Greeting : Client {
  channel::Security security{};
  Clock::time_point until{};
  channel::TenantChange change{};  // follows the preamble if that is what it is for
  std::size_t received = 0;
  std::string answer{};
  bool is_refused = false;
  std::uint64_t at_door = 0;  // the number by which it is known there
};

// Are read from a descriptor instead of interrupting anything. Before there is a second thread.
class Signals {
 public:
  Signals() {
    sigset_t handled;
    sigemptyset(&handled);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&handled, signal);
    sigprocmask(SIG_BLOCK, &handled, &before_);
    descriptor_ = channel::Descriptor{signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)};
  }
  int descriptor() const { return descriptor_.get(); }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
  channel::Descriptor descriptor_;
};

// As systemd wants it of services with Type=notify.
void tell_systemd(const char* state) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (!path || std::strlen(path) >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, std::strlen(path) + 1);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const channel::Descriptor socket{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  (void)sendto(socket.get(), state, std::strlen(state), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
               length);
}

// Each session takes a few descriptors.
void allow_many_files() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::max(files.rlim_cur, std::min(files.rlim_max, kManyFiles));
  setrlimit(RLIMIT_NOFILE, &files);
}

class Server {
 public:
  explicit Server(const ServeOptions& options)
      : options_{options}, audit_{options.audit}, workers_{options, audit_, signals_.before()} {
    allow_many_files();
    for (const auto& [address, security] : options.listen) {
      listening_.push_back(channel::listen_at(address));
      if (address.kind == channel::Address::Kind::unix_socket && !options.users.empty()) let_users_in(address.path);
    }
    if (options.metrics) metrics_ = MetricsDoor{channel::listen_at(*options.metrics)};
  }

  int run() {
    workers_.start_ready();
    if (std::any_of(options_.listen.begin(), options_.listen.end(),
                    [](const auto& place) { return place.security == channel::Security::tls; }))
      door_ = start_child(options_.door, signals_.before());
    json addresses = json::array();
    for (std::size_t index = 0; index < listening_.size(); ++index) {
      addresses.push_back(channel::bound_at(listening_[index], options_.listen[index].address).text());
      fmt::print("listening at {}\n", addresses.back().get<std::string>());
    }
    if (options_.metrics)
      fmt::print("metrics at {}\n", channel::bound_at(metrics_.listening(), *options_.metrics).text());
    std::fflush(stdout);
    audit_.note("start", {{"pid", getpid()}, {"listen", addresses}});
    tell_systemd("READY=1");
    while (!is_over()) {
      std::vector<pollfd> ready;
      ready.push_back({signals_.descriptor(), POLLIN, 0});
      for (const auto& socket : listening_) ready.push_back({socket.get(), POLLIN, 0});
      ready.push_back({door_ ? door_->control.get() : -1, POLLIN, 0});
      for (const auto& greeting : greetings_) {
        const auto events = static_cast<short>(greeting.answer.empty() ? POLLIN : POLLOUT);
        ready.push_back({greeting.at_door != 0 ? -1 : greeting.socket.get(), events, 0});
      }
      metrics_.add_to(ready);
      const std::size_t others = ready.size();
      workers_.add_to(ready);
      if (poll(ready.data(), ready.size(), patience()) < 0) continue;
      workers_.hear(std::span{ready}.subspan(others));
      if (ready[listening_.size() + 1].revents) hear_door();
      workers_.kill_late();
      if (ready[0].revents) handle_signals();
      while (!greetings_.empty() && greetings_.front().until < Clock::now()) give_up_first();
      for (std::size_t index = 0; index < listening_.size(); ++index) {
        if (ready[index + 1].revents) accept(listening_[index], options_.listen[index].security);
      }
      greet();
      workers_.share_out_memory();
      metrics_.serve([this] { return metrics_text(status()); });
    }
    end();
    return 0;
  }

 private:
  // Others must be able to reach it; whether they come in is decided by who they are.
  static void let_users_in(const std::string& path) {
    chmod(path.c_str(), S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH);
    const std::string folder = path.substr(0, path.rfind('/'));
    struct stat about {};
    if (!folder.empty() && stat(folder.c_str(), &about) == 0 && (about.st_mode & S_IXOTH) == 0)
      log::warn("serve", "other users can't get into {}: chmod o+x it, or listen elsewhere", folder);
  }

  bool is_over() const { return ending_ && (workers_.sessions() == 0 || Clock::now() >= drained_); }

  // How long to wait for something to happen, in milliseconds.
  int patience() const {
    if (const auto soon = workers_.patience()) return *soon;
    if (!ending_) return greetings_.empty() && !metrics_.is_busy() ? -1 : 1000;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(drained_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
  }

  // Clients that come back find nobody, and so know that it is over.
  void end() {
    for (const auto& [address, security] : options_.listen) {
      if (address.kind == channel::Address::Kind::unix_socket) unlink(address.path.c_str());
    }
    listening_.clear();
    greetings_.clear();
    metrics_ = {};
    door_.reset();
    workers_.end_all();
    const auto until = Clock::now() + kPatienceAtEnd;
    for (pollfd ready{signals_.descriptor(), POLLIN, 0}; !workers_.empty() && Clock::now() < until;) {
      workers_.kill_late();
      poll(&ready, 1, 50);
      handle_signals();
    }
    audit_.note("stop", {{"pid", getpid()}});
  }

  // The user of the server, or root, on this host.
  static bool is_in_charge(const Peer& peer) { return peer.user && (*peer.user == 0 || *peer.user == geteuid()); }

  bool admits(const Peer& peer) const {
    if (!peer.user || is_in_charge(peer)) return true;  // who listens elsewhere than on loopback is refused before
    return std::find(options_.users.begin(), options_.users.end(), *peer.user) != options_.users.end();
  }

  void accept(const channel::Descriptor& listening, channel::Security security) {
    channel::Descriptor client = channel::accept_from(listening);
    if (client.get() < 0) return;
    Greeting greeting{{std::move(client), {}}, security, Clock::now() + kPatience};
    greeting.peer = peer_of(greeting.socket);
    if (greetings_.size() >= kMostGreeting) give_up_first();
    if (!admits(greeting.peer)) refuse(greeting, channel::Refusal::stranger);
    greetings_.push_back(std::move(greeting));
  }

  // Whoever means well is let in soon; who has been here longest makes room for others.
  void give_up_first() {
    const Greeting& first = greetings_.front();
    if (!first.is_refused) note_refusal(first.peer, "it was not let in in time");
    shutdown(first.socket.get(), SHUT_RDWR);  // the door has it, too
    greetings_.erase(greetings_.begin());
  }

  // What they still send is taken first: unread, it would keep the answer from coming.
  template <typename Answer>
  static void say_and_leave(Greeting& greeting, const Answer& answer) {
    (void)!send(greeting.socket.get(), &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(greeting.socket.get(), SHUT_WR);
    greeting.is_refused = true;
  }

  void note_refusal(const Peer& peer, std::string_view why) {
    ++all_refusals_;
    if (Clock::now() > refusals_since_ + std::chrono::seconds{1}) {
      if (refusals_ > kMostRefusals) audit_.note("refuse", {{"more", refusals_ - kMostRefusals}});
      refusals_since_ = Clock::now();
      refusals_ = 0;
    }
    if (++refusals_ > kMostRefusals) return;
    log::warn("serve", "{} was refused: {}", peer.text(), why);
    audit_.note("refuse", {{"peer", peer.json()}, {"why", why}});
  }

  void refuse(Greeting& greeting, channel::Refusal why) {
    constexpr const char* kWhy[] = {
        "no process could be started", "not admitted",       "too many sessions",
        "the server is about to end",  "it doesn't use TLS", "it uses TLS, which only --keys or --tls offers here",
        "it has no session any more"};
    note_refusal(greeting.peer, kWhy[static_cast<std::size_t>(why)]);  // first: who was told can rely on the audit
    channel::Welcome answer;
    answer.refusal = why;
    say_and_leave(greeting, answer);
  }

  void greet() {
    for (Greeting& greeting : greetings_) {
      if (greeting.at_door != 0) continue;
      if (!greeting.answer.empty()) {
        send_answer(greeting);
        continue;
      }
      if (greeting.is_refused) {
        char rest[4096];
        const ssize_t size = recv(greeting.socket.get(), rest, sizeof rest, MSG_DONTWAIT);
        if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) greeting.socket.reset();
        continue;
      }
      if (greeting.secret) {
        go_on(greeting);
        continue;
      }
      const ssize_t received = receive_for(greeting);
      if (received < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      greeting.received += static_cast<std::size_t>(std::max<ssize_t>(received, 0));
      if (received > 0 && !room_for(greeting).empty()) continue;
      if (received > 0 && greeting.preamble.magic == channel::kMagic) serve_purpose(greeting);
      if (!is_awaited(greeting)) greeting.socket.reset();
    }
    std::erase_if(greetings_, [](const Greeting& greeting) { return greeting.socket.get() < 0; });
  }

  // For what is still to come before it is known what they want.
  static std::span<std::byte> room_for(Greeting& greeting) {
    const std::span<std::byte> preamble = std::as_writable_bytes(std::span{&greeting.preamble, 1});
    if (greeting.received < preamble.size()) return preamble.subspan(greeting.received);
    const std::size_t more = greeting.received - preamble.size();
    if (greeting.preamble.purpose == channel::Preamble::Purpose::change)
      return std::as_writable_bytes(std::span{&greeting.change, 1}).subspan(more);
    if (greeting.preamble.purpose == channel::Preamble::Purpose::area_session && greeting.area[1].get() >= 0)
      return std::as_writable_bytes(std::span{&greeting.slice, 1}).subspan(more);
    return {};
  }

  // Relays bring descriptors along.
  static ssize_t receive_for(Greeting& greeting) {
    const std::span<std::byte> room = room_for(greeting);
    std::array<channel::Descriptor, 2> brought;
    const ssize_t received = channel::receive_descriptors(greeting.socket.get(), room, MSG_DONTWAIT, brought);
    if (brought[1].get() >= 0) greeting.area = std::move(brought);
    return received;
  }

  // Without a slice that can be used it is a bare session.
  static void check_slice(Greeting& greeting) {
    using Purpose = channel::Preamble::Purpose;
    if (greeting.preamble.purpose != Purpose::area_session) return;
    if (greeting.area[1].get() >= 0 && channel::is_slice_of(greeting.area[0].get(), greeting.slice)) return;
    greeting.preamble.purpose = Purpose::bare_session;
    greeting.slice = {};
  }

  // Who was let in begins the second TLS then; before, it would take an answer for a part of the first.
  void go_on(Greeting& greeting) {
    char first = 0;
    const ssize_t received = recv(greeting.socket.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (received > 0) serve_purpose(greeting);
    if (!is_awaited(greeting)) greeting.socket.reset();
  }

  static bool is_awaited(const Greeting& greeting) {
    return !greeting.answer.empty() || greeting.is_refused || greeting.at_door != 0;
  }

  void ask_door(Greeting& greeting) {
    if (!door_) door_ = start_child(options_.door, signals_.before());
    const int client = greeting.socket.get();
    if (door_ && channel::pass(door_->control.get(), DoorRequest{++asked_}, {&client, 1})) {
      greeting.at_door = asked_;
    } else {
      refuse(greeting, channel::Refusal::none);
    }
  }

  void hear_door() {
    DoorAnswer answer;
    while (recv(door_->control.get(), &answer, sizeof answer, MSG_DONTWAIT) == sizeof answer) {
      const auto greeting = std::find_if(greetings_.begin(), greetings_.end(),
                                         [&](const Greeting& one) { return one.at_door == answer.number; });
      if (greeting == greetings_.end()) continue;
      answer.text.back() = '\0';
      greeting->at_door = 0;
      if (answer.is_admitted != 0) {
        greeting->peer.name = answer.text.data();
        std::erase_if(greeting->peer.name, [](char c) { return static_cast<unsigned char>(c) < ' '; });
        greeting->secret = answer.secret;
      } else {
        note_refusal(greeting->peer, answer.text.data());
        greetings_.erase(greeting);
      }
    }
  }

  void serve_purpose(Greeting& greeting) {
    using Purpose = channel::Preamble::Purpose;
    const bool is_back = greeting.preamble.purpose == Purpose::resume;
    if (greeting.preamble.security != greeting.security) {
      refuse(greeting,
             greeting.security == channel::Security::tls ? channel::Refusal::wants_tls : channel::Refusal::has_no_tls);
    } else if (channel::common_protocol(greeting.preamble.protocols, {}) == 0) {
      say_and_leave(greeting, channel::Welcome{});
      note_refusal(greeting.peer, channel::text_of_difference(greeting.preamble.protocols, {}, "client", "server"));
    } else if (greeting.preamble.purpose == Purpose::status) {
      answer_about_status(greeting);
    } else if (greeting.preamble.purpose == Purpose::change) {
      greeting.answer = channel::status_answer(change_for(greeting));
    } else if (greeting.preamble.purpose == Purpose::pages) {
      bring_pages(greeting);
    } else if (is_back && !workers_.peer_of_session(greeting.preamble.session)) {
      refuse_to_resume(greeting);
    } else if (greeting.security == channel::Security::tls && !greeting.secret) {
      if (is_back) workers_.hand_over(greeting, Workers::Brings::nothing);
      ask_door(greeting);
    } else if (is_back) {
      resume_session(greeting);
    } else if (ending_) {
      refuse(greeting, channel::Refusal::ending);
    } else if (workers_.sessions() >= options_.sessions ||
               workers_.sessions_of_tenant_of(greeting.peer) >= options_.tenant_sessions) {
      refuse(greeting, channel::Refusal::full);
    } else {
      check_slice(greeting);
      if (!workers_.start_session(greeting)) refuse(greeting, channel::Refusal::none);
    }
  }

  // Never waits: whoever asked may be in no hurry to read.
  static void send_answer(Greeting& greeting) {
    std::string& answer = greeting.answer;
    const ssize_t sent = send(greeting.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    answer.erase(0, static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
    if (sent < 0 || answer.empty()) greeting.socket.reset();
  }

  void answer_about_status(Greeting& greeting) {
    if (greeting.security == channel::Security::plain) {
      greeting.answer = channel::status_answer(status_for(greeting.peer));
    } else if (!greeting.secret) {
      ask_door(greeting);
    } else if (door_) {
      (void)tell_by_door(door_->control.get(), greeting.socket, *greeting.secret,
                         channel::status_answer(status_for(greeting.peer)));
    }
  }

  // Everybody sees their own sessions; this user and root, on its own host, see all.
  std::string status_for(const Peer& peer) {
    return status(is_in_charge(peer) ? nullptr : &peer)
        .dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  }

  json status(const Peer* only = nullptr) {
    json answer = {{"version", GRUS_VERSION}, {"pid", getpid()}, {"refusals", all_refusals_}};
    answer.update(workers_.status(only));
    return answer;
  }

  std::string change_for(const Greeting& greeting) {
    const std::string why_not = is_in_charge(greeting.peer)
                                    ? workers_.change(greeting.change, greeting.peer)
                                    : "only the user of the server and root change something, on its own host";
    return why_not.empty() ? status_for(greeting.peer) : json{{"error", why_not}}.dump();
  }

  // Whether they have the session's ticket, its worker sees.
  void bring_pages(Greeting& greeting) {
    if (!workers_.peer_of_session(greeting.preamble.session)) return refuse_to_resume(greeting);
    channel::Welcome welcome;
    welcome.protocol = channel::common_protocol(greeting.preamble.protocols, {});
    (void)!send(greeting.socket.get(), &welcome, sizeof welcome, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)workers_.hand_over(greeting, Workers::Brings::socket);
  }

  void resume_session(Greeting& greeting) {
    const Peer* const before = workers_.peer_of_session(greeting.preamble.session);
    if (before->name != greeting.peer.name || !workers_.hand_over(greeting, Workers::Brings::socket))
      refuse_to_resume(greeting);
  }

  void refuse_to_resume(Greeting& greeting) {
    if (greeting.security == channel::Security::plain) {
      say_and_leave(greeting, channel::Resumed{});
    } else {
      refuse(greeting, channel::Refusal::has_no_such_session);
    }
  }

  void handle_signals() {
    signalfd_siginfo signal{};
    while (read(signals_.descriptor(), &signal, sizeof signal) == sizeof signal) {
      const bool terminal_is_gone = has_terminal_ && isatty(STDIN_FILENO) == 0;
      if (signal.ssi_signo == SIGHUP && !terminal_is_gone) {
        workers_.end_revoked();
        continue;
      }
      if (signal.ssi_signo == SIGCHLD) continue;
      if (!ending_) tell_systemd("STOPPING=1");
      drained_ = ending_ ? Clock::now() : Clock::now() + options_.drain;  // who says it twice doesn't want to wait
      ending_ = true;
    }
    int status = 0;
    for (pid_t process = 0; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (door_ && process == door_->process) lose_door();
      workers_.has_ended(process, status, ending_);
    }
  }

  // The next one who comes starts another.
  void lose_door() {
    if (!ending_) log::error("serve", "what lets clients in has ended; those who were there have to come again");
    std::erase_if(greetings_, [](const Greeting& greeting) { return greeting.at_door != 0; });
    door_.reset();
  }

  const ServeOptions& options_;
  const Audit audit_;
  const Signals signals_;
  Workers workers_;
  std::vector<channel::Descriptor> listening_;
  std::vector<Greeting> greetings_;  // who came first is first
  std::optional<Child> door_;
  MetricsDoor metrics_;
  std::uint64_t asked_ = 0;  // at the door, so often
  std::uint64_t all_refusals_ = 0;
  int refusals_ = 0;  // within a second
  Clock::time_point refusals_since_{};
  const bool has_terminal_ = isatty(STDIN_FILENO) == 1;
  bool ending_ = false;
  Clock::time_point drained_{};
};

}  // namespace

int serve(const ServeOptions& options) { return Server{options}.run(); }

}  // namespace grus::server
