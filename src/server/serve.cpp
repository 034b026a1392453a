#include "server/serve.hpp"

#include <poll.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/random.h>
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
#include "channel/status.hpp"
#include "server/audit.hpp"
#include "server/child.hpp"
#include "server/counters.hpp"
#include "server/door.hpp"
#include "server/handover.hpp"
#include "server/leases.hpp"
#include "server/memory_shares.hpp"
#include "server/metrics.hpp"
#include "server/peer.hpp"

namespace grus::server {
namespace {

using json = nlohmann::ordered_json;

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{10};      // with who connects and isn't let in yet
constexpr std::chrono::seconds kPatienceAtEnd{5};  // with workers that were told to end
constexpr std::chrono::seconds kPatienceWithPeers{2};
constexpr std::chrono::milliseconds kTimeToEnd{500};  // for a worker that has to say why it ends
constexpr std::size_t kMostGreeting = 256;
constexpr int kMostRefusals = 20;  // that are noted in a second: whoever comes again and again fills no disk
constexpr rlim_t kManyFiles = 16384;
constexpr int kMostRequests = 64;                         // of a worker, before others are heard
constexpr std::uint64_t kSlack = std::uint64_t{1} << 30;  // bytes more than were asked for, where nobody counts

// Who has connected and has not said yet what for, is at the door, or has not taken yet what was answered.
struct Greeting {
  channel::Descriptor socket;
  Peer peer;
  channel::Security security;
  Clock::time_point until;
  channel::Preamble preamble{};
  channel::TenantChange change{};  // follows it if that is what it is for
  channel::Slice slice{};          // so does this, with the area's file and what tells of its end
  std::array<channel::Descriptor, 2> area{};
  std::size_t received = 0;
  std::string answer{};
  bool is_refused = false;
  std::uint64_t at_door = 0;  // the number by which it is known there
  std::optional<channel::Secret> secret{};
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

struct Worker {
  Child child;
  SharedCounters counters;
  std::uint64_t session = 0;  // 0: it waits for a client
  Peer peer{};
  Clock::time_point since{};
  std::string tenant{};
  std::uint64_t asked = 0;  // the number of its request for room
  pid_t connecting = 0;     // the process that does so for it; 0: none
  std::string why{};        // the server ended it
  std::optional<Clock::time_point> ends{};

  json facts() const {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since);
    json all = {{"session", fmt::format("{:016x}", session)},
                {"peer", peer.json()},
                {"tenant", tenant},
                {"worker", child.process},
                {"seconds", static_cast<double>(age.count()) / 1000}};
    all.update(to_json(*counters));
    return all;
  }
};

// What sessions did, in all.
struct Done {
  std::uint64_t commands = 0;
  std::uint64_t moved_out = 0;
  std::uint64_t moved_in = 0;
  Done& operator+=(const Counters& more) {
    commands += more.commands.load();
    moved_out += more.moved_out.load();
    moved_in += more.moved_in.load();
    return *this;
  }
};

bool is_tenant_by_itself(const Peer& peer) { return peer.name.empty() && !peer.user; }

// Who is behind a session: by certificate, by user, or nobody knows and each is one by itself.
std::string tenant_of(const Peer& peer, std::uint64_t session) {
  if (!peer.name.empty()) return peer.name;
  if (is_tenant_by_itself(peer)) return fmt::format("session-{:08x}", session >> 32U);
  const passwd* const entry = getpwuid(*peer.user);
  return entry ? entry->pw_name : std::to_string(*peer.user);
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
      : options_{options}, audit_{options.audit}, memory_{{options.memory, options.memory_shares}} {
    for (const auto& [tenant, terms] : options.tenants) memory_.set_terms(tenant, terms);
    allow_many_files();
    for (const auto& [address, security] : options.listen) {
      listening_.push_back(channel::listen_at(address));
      if (address.kind == channel::Address::Kind::unix_socket && !options.users.empty()) let_users_in(address.path);
    }
    if (options.metrics) metrics_ = MetricsDoor{channel::listen_at(*options.metrics)};
    sigset_t handled;
    sigemptyset(&handled);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&handled, signal);
    sigprocmask(SIG_BLOCK, &handled, &before_);
    signals_ = channel::Descriptor{signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK)};
    if (!options.shares) return;
    leases_.emplace(options.time_limit);
    for (const auto& [tenant, terms] : options.tenants) leases_->set_terms(tenant, terms);
  }

  int run() {
    start_worker();
    if (std::any_of(options_.listen.begin(), options_.listen.end(),
                    [](const auto& place) { return place.security == channel::Security::tls; }))
      door_ = start_child(options_.door, before_);
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
      ready.push_back({signals_.get(), POLLIN, 0});
      for (const auto& socket : listening_) ready.push_back({socket.get(), POLLIN, 0});
      ready.push_back({door_ ? door_->control.get() : -1, POLLIN, 0});
      ready.push_back({leases_ ? leases_->greedy() : -1, POLLIN, 0});
      for (const auto& greeting : greetings_) {
        const auto events = static_cast<short>(greeting.answer.empty() ? POLLIN : POLLOUT);
        ready.push_back({greeting.at_door != 0 ? -1 : greeting.socket.get(), events, 0});
      }
      metrics_.add_to(ready);
      for (const auto& worker : workers_) ready.push_back({worker.child.control.get(), POLLIN, 0});
      if (poll(ready.data(), ready.size(), patience()) < 0) continue;
      for (std::size_t index = 0; index < workers_.size(); ++index) {
        if (ready[ready.size() - workers_.size() + index].revents & POLLIN) hear_worker(workers_[index]);
      }
      if (ready[listening_.size() + 1].revents) hear_door();
      if (ready[listening_.size() + 2].revents) end_greedy();
      kill_late_workers();
      if (ready[0].revents) handle_signals();
      while (!greetings_.empty() && greetings_.front().until < Clock::now()) give_up_first();
      for (std::size_t index = 0; index < listening_.size(); ++index) {
        if (ready[index + 1].revents) accept(listening_[index], options_.listen[index].security);
      }
      greet();
      share_out_memory();
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

  bool is_over() const { return ending_ && (sessions() == 0 || Clock::now() >= drained_); }

  // How long to wait for something to happen, in milliseconds.
  int patience() const {
    if (std::any_of(workers_.begin(), workers_.end(), [](const Worker& one) { return one.ends.has_value(); }))
      return 50;
    if (memory_.next()) return 100;
    if (!ending_) return greetings_.empty() && !metrics_.is_busy() ? -1 : 1000;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(drained_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
  }

  std::size_t sessions() const {
    return static_cast<std::size_t>(
        std::count_if(workers_.begin(), workers_.end(), [](const Worker& one) { return one.session != 0; }));
  }

  std::size_t sessions_of_tenant(const Peer& peer) const {
    if (is_tenant_by_itself(peer)) return 0;
    const std::string tenant = tenant_of(peer, 0);
    return static_cast<std::size_t>(std::count_if(
        workers_.begin(), workers_.end(), [&](const Worker& one) { return one.session != 0 && one.tenant == tenant; }));
  }

  // Clients that come back find nobody, and so know that it is over.
  void end() {
    tell_systemd("STOPPING=1");
    for (const auto& [address, security] : options_.listen) {
      if (address.kind == channel::Address::Kind::unix_socket) unlink(address.path.c_str());
    }
    listening_.clear();
    greetings_.clear();
    metrics_ = {};
    door_.reset();
    for (const int signal : {SIGTERM, SIGKILL}) {
      for (const Worker& worker : workers_) kill(worker.child.process, signal);
      const auto until = Clock::now() + kPatienceAtEnd;
      for (pollfd ready{signals_.get(), POLLIN, 0}; !workers_.empty() && Clock::now() < until;) {
        poll(&ready, 1, 100);
        handle_signals();
      }
    }
    audit_.note("stop", {{"pid", getpid()}});
  }

  void start_worker() {
    auto counters = SharedCounters::make();
    if (!counters) return log::error("serve", "a worker can't be started: {}", std::strerror(errno));
    if (auto child = start_child(options_.worker, before_))
      workers_.push_back({std::move(*child), std::move(counters)});
  }

  bool admits(const Peer& peer) const {
    if (!peer.user) return true;  // who listens elsewhere than here and on loopback is refused before
    return *peer.user == 0 || *peer.user == geteuid() ||
           std::find(options_.users.begin(), options_.users.end(), *peer.user) != options_.users.end();
  }

  void accept(const channel::Descriptor& listening, channel::Security security) {
    channel::Descriptor client = channel::accept_from(listening);
    if (client.get() < 0) return;
    Greeting greeting{std::move(client), {}, security, Clock::now() + kPatience};
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
    if (!door_) door_ = start_child(options_.door, before_);
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
    if (greeting.preamble.security != greeting.security) {
      refuse(greeting,
             greeting.security == channel::Security::tls ? channel::Refusal::wants_tls : channel::Refusal::has_no_tls);
    } else if (channel::common_protocol(greeting.preamble.protocols, {}) == 0) {
      say_and_leave(greeting, channel::Welcome{});
      note_refusal(greeting.peer, channel::text_of_difference(greeting.preamble.protocols, {}, "client", "server"));
    } else if (greeting.preamble.purpose == Purpose::status) {
      greeting.answer = channel::status_answer(status_for(greeting.peer));
    } else if (greeting.preamble.purpose == Purpose::change) {
      greeting.answer = channel::status_answer(change_for(greeting));
    } else if (greeting.preamble.purpose == Purpose::pages) {
      bring_pages(greeting);
    } else if (greeting.preamble.purpose == Purpose::resume && !worker_to_resume(greeting)) {
      refuse_to_resume(greeting);
    } else if (greeting.security == channel::Security::tls && !greeting.secret) {
      if (const Worker* const worker = worker_to_resume(greeting)) hand_over(greeting, *worker, {});
      ask_door(greeting);
    } else if (greeting.preamble.purpose == Purpose::resume) {
      resume_session(greeting);
    } else if (ending_) {
      refuse(greeting, channel::Refusal::ending);
    } else if (sessions() >= options_.sessions || sessions_of_tenant(greeting.peer) >= options_.tenant_sessions) {
      refuse(greeting, channel::Refusal::full);
    } else {
      check_slice(greeting);
      start_session(greeting);
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

  // Users see their own sessions; this user and root see all.
  std::string status_for(const Peer& peer) {
    json answer = {{"error", "over a network it tells nobody what runs; ask on its own host, through a Unix socket"}};
    if (peer.user) answer = *peer.user == 0 || *peer.user == geteuid() ? status() : status(&peer);
    return answer.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  }

  // All of it, or only what is theirs.
  json status(const Peer* only = nullptr) {
    json answer = {{"version", GRUS_VERSION},
                   {"pid", getpid()},
                   {"shares", leases_.has_value()},
                   {"limits", memory_.has_limits()},
                   {"sessions_started", sessions_started_},
                   {"sessions_ended_for_greed", greedy_},
                   {"refusals", all_refusals_},
                   {"swap_bytes", options_.swap},
                   {"swap_used_bytes", options_.swap - swap_left()},
                   {"devices", json::array()},
                   {"sessions", json::array()}};
    for (const auto& [device, capacity, free] : memory_.rooms())
      answer["devices"].push_back({{"device", device}, {"memory_bytes", capacity}, {"free_bytes", free}});
    for (const Worker& worker : workers_) {
      if (worker.session != 0 && (!only || worker.peer.user == only->user))
        answer["sessions"].push_back(facts_of(worker));
    }
    answer["tenants"] = tenants_for(only);
    return answer;
  }

  std::string change_for(const Greeting& greeting) {
    const channel::TenantChange& change = greeting.change;
    const std::string tenant{change.tenant.data(), strnlen(change.tenant.data(), change.tenant.size())};
    const std::optional<uid_t> user = greeting.peer.user;
    if (!user || (*user != 0 && *user != geteuid()))
      return json{{"error", "only the user of the server and root change something, on its own host"}}.dump();
    if (!leases_ && (change.weight != 0 || change.cap != 0))
      return json{{"error", "it doesn't share out its devices: start it with --shares"}}.dump();
    if (tenant.empty() || change.weight > TenantTerms::kMostWeight || change.cap > 100)
      return json{{"error", "that makes no sense"}}.dump();
    TenantTerms terms = memory_.terms(tenant);
    if (change.weight != 0) terms.weight = change.weight;
    if (change.cap != 0) terms.cap = change.cap;
    if (change.memory != 0) terms.memory = change.memory;
    memory_.set_terms(tenant, terms);
    if (leases_) leases_->set_terms(tenant, terms);
    audit_.note("change", {{"peer", greeting.peer.json()},
                           {"tenant", tenant},
                           {"weight", terms.weight},
                           {"cap_percent", terms.cap},
                           {"memory_bytes", terms.memory}});
    return status_for(greeting.peer);
  }

  json facts_of(const Worker& worker) const {
    json facts = worker.facts();
    if (leases_) facts.update(leases_->session_json(worker.session));
    return facts;
  }

  json tenants_for(const Peer* only) {
    const json times = leases_ ? leases_->tenants_json() : json::array();
    const std::string own = only ? tenant_of(*only, 0) : "";
    json seen = json::array();
    for (const std::string& name : memory_.tenants()) {
      if (only && name != own) continue;
      const TenantTerms terms = memory_.terms(name);
      json tenant = {{"tenant", name},
                     {"sessions", memory_.sessions_of(name)},
                     {"weight", terms.weight},
                     {"cap_percent", terms.cap}};
      for (const json& one : times) {
        if (one["tenant"] == name) tenant.update(one);
      }
      std::uint64_t memory = 0;
      std::uint64_t on_device = 0;
      std::uint64_t swapped_out = 0;
      Done done = done_[name];
      for (const Worker& worker : workers_) {
        if (worker.session == 0 || worker.tenant != name) continue;
        memory += worker.counters->memory.load();
        on_device += worker.counters->on_device.load();
        swapped_out += worker.counters->swapped_out.load();
        done += *worker.counters;
      }
      tenant.update({{"quota_bytes", memory_.quota_of(name)},
                     {"memory_part", memory_.part_of(name)},
                     {"memory_bytes", memory},
                     {"on_device_bytes", on_device},
                     {"swapped_out_bytes", swapped_out},
                     {"moved_out_bytes", done.moved_out},
                     {"moved_in_bytes", done.moved_in},
                     {"commands", done.commands}});
      seen.push_back(std::move(tenant));
    }
    return seen;
  }

  // It could say anything.
  void hear_worker(Worker& worker) {
    Request request{};
    for (int left = kMostRequests; left > 0 && recv(worker.child.control.get(), &request, sizeof request,
                                                    MSG_DONTWAIT) == static_cast<ssize_t>(sizeof request);
         --left) {
      using What = Request::What;
      switch (request.what) {
        case What::connection:
          connect_for(worker, request);
          break;
        case What::capacity:
          if (request.device < LeasePage::kDevices && !memory_.has_capacity(request.device))
            memory_.set_capacity(request.device, options_.device_memory != 0
                                                     ? std::min(options_.device_memory, request.bytes)
                                                     : request.bytes);
          break;
        case What::total: {
          const std::uint64_t quota = memory_.quota_of(worker.tenant);
          const std::uint64_t slack = quota == 0 ? kSlack : 0;
          const std::uint64_t total = memory_.ask_total(worker.session, request.bytes + slack);
          say(worker, {MemoryWord::What::total, 0, request.number, total, 0, quota});
          break;
        }
        case What::less:
          memory_.return_total(worker.session, request.bytes);
          break;
        case What::room:
          worker.asked = request.number;
          if (!memory_.ask_room(worker.session, request.device, request.bytes, request.must != 0))
            say(worker, {MemoryWord::What::refused, request.device, request.number, 0, 0, 0});
          break;
        case What::moved_out:
          memory_.moved_out(worker.session, request.device, request.bytes);
          break;
      }
    }
  }

  static void say(const Worker& worker, const MemoryWord& word) {
    (void)channel::pass(worker.child.control.get(), Handover{.preamble = {}, .memory = word}, {});
  }

  std::uint64_t swap_left() const {
    std::uint64_t left = options_.swap;
    for (const Worker& worker : workers_) left -= std::min(left, worker.counters->swapped_out.load());
    return left;
  }

  void share_out_memory() {
    using What = MemoryShares::Action::What;
    const auto used_at = [this](std::uint64_t session) {
      const Worker* const worker = worker_of(session);
      return Clock::time_point{std::chrono::nanoseconds{worker ? worker->counters->used_at.load() : 0}};
    };
    for (const auto& [what, session, device, bytes] : memory_.decide(Clock::now(), used_at)) {
      const Worker* const worker = worker_of(session);
      if (!worker) continue;
      const auto word = what == What::grant    ? MemoryWord::What::granted
                        : what == What::refuse ? MemoryWord::What::refused
                                               : MemoryWord::What::move_out;
      say(*worker, {word, device, what == What::move_out ? 0 : worker->asked, bytes, swap_left(), 0});
    }
  }

  // In a process of its own, one at a time: whoever is to answer may take long.
  void connect_for(Worker& worker, const Request& wanted) {
    const std::string address{wanted.address, strnlen(wanted.address, sizeof wanted.address)};
    audit_.note("connect to", {{"session", fmt::format("{:016x}", worker.session)}, {"address", address}});
    const bool may = options_.direct && worker.connecting == 0;
    const pid_t child = may ? fork() : -1;
    if (child < 0) return give_connection(worker, {});
    if (child > 0) {
      worker.connecting = child;
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    listening_.clear();
    channel::Descriptor socket;
    try {
      socket = channel::connect_to(channel::Address::parse(address), kPatienceWithPeers);
    } catch (const std::exception&) {  // nobody is there
    }
    give_connection(worker, socket);
    _exit(0);
  }

  static void give_connection(const Worker& worker, const channel::Descriptor& socket) {
    const int number = socket.get();
    (void)channel::pass(worker.child.control.get(), Handover{.preamble = {}, .is_connection = 1},
                        {&number, number < 0 ? 0U : 1U});
  }

  bool hand_over(const Greeting& greeting, const Worker& worker, std::span<const int> descriptors) const {
    const Handover what{greeting.preamble,
                        worker.session,
                        static_cast<std::uint64_t>(options_.grace.count()),
                        0,
                        greeting.secret.value_or(channel::Secret{}),
                        {},
                        {},
                        memory_.quota_of(worker.tenant),
                        memory_.part_of(worker.tenant),
                        options_.swap != 0 ? 1U : 0U,
                        greeting.slice};
    return channel::pass(worker.child.control.get(), what, descriptors);
  }

  // A worker that has died since it was started is replaced once; its client would have to wait for ever.
  void start_session(Greeting& greeting) {
    bool started = false;
    for (int attempt = 0; attempt < 2 && !started; ++attempt) {
      const auto ready =
          std::find_if(workers_.begin(), workers_.end(), [](const auto& one) { return one.session == 0; });
      if (ready != workers_.end()) {
        (void)!getrandom(&ready->session, sizeof ready->session, 0);
        channel::Descriptor bell = leases_ ? Leases::new_bell() : channel::Descriptor{};
        std::vector<int> descriptors{greeting.socket.get(), ready->counters.descriptor()};
        if (greeting.slice.size != 0)
          descriptors.insert(descriptors.end(), {greeting.area[0].get(), greeting.area[1].get()});
        if (leases_) descriptors.push_back(bell.get());
        ready->tenant = tenant_of(greeting.peer, ready->session);
        started = hand_over(greeting, *ready, descriptors);
        if (started) {
          note_start(*ready, greeting.peer);
          memory_.add(ready->session, ready->tenant);
          if (leases_) leases_->add(ready->session, ready->tenant, ready->counters, std::move(bell));
        } else {
          workers_.erase(ready);
        }
      }
      start_worker();
    }
    if (!started) refuse(greeting, channel::Refusal::none);
  }

  void note_start(Worker& worker, const Peer& peer) {
    worker.peer = peer;
    worker.since = Clock::now();
    ++sessions_started_;
    audit_.note(
        "connect",
        {{"peer", peer.json()}, {"session", fmt::format("{:016x}", worker.session)}, {"worker", worker.child.process}});
  }

  void note_end(const Worker& worker, int status) {
    if (WIFSIGNALED(status) && !ending_)
      log::warn("serve", "worker {} was ended by signal {}", worker.child.process, WTERMSIG(status));
    if (worker.session == 0) return;
    json facts = facts_of(worker);
    const std::string why = why_ended(*worker.counters);
    facts["why"] = !worker.why.empty()   ? worker.why
                   : !why.empty()        ? why
                   : ending_             ? "the server ended"
                   : WIFSIGNALED(status) ? fmt::format("the worker was ended by signal {}", WTERMSIG(status))
                                         : "the driver ended the worker";
    audit_.note("end", facts);
    memory_.remove(worker.session);
    done_[worker.tenant] += *worker.counters;
    if (is_tenant_by_itself(worker.peer)) {
      memory_.forget(worker.tenant);
      done_.erase(worker.tenant);
    }
    if (!leases_) return;
    leases_->remove(worker.session);
    if (is_tenant_by_itself(worker.peer)) leases_->forget_tenant(worker.tenant);
  }

  void end_greedy() {
    for (const std::uint64_t session : leases_->take_greedy()) {
      for (Worker& worker : workers_) {
        if (worker.session != session) continue;
        worker.why = fmt::format("a command of it took longer than {} s while others waited for the device",
                                 options_.time_limit.count());
        end_session(worker);
        ++greedy_;
      }
    }
  }

  // Its client is told why, if the worker can still do that.
  static void end_session(Worker& worker) {
    Handover what{.preamble = {}};
    worker.why.copy(what.why_it_ends, sizeof what.why_it_ends - 1);
    const bool is_told = channel::pass(worker.child.control.get(), what, {});
    worker.ends = Clock::now() + (is_told ? kTimeToEnd : std::chrono::milliseconds{0});
  }

  void kill_late_workers() {
    for (Worker& worker : workers_) {
      if (worker.ends && *worker.ends <= Clock::now()) kill(worker.child.process, SIGKILL);
    }
  }

  const Worker* worker_to_resume(const Greeting& greeting) const {
    return greeting.preamble.purpose == channel::Preamble::Purpose::resume ? worker_of(greeting.preamble.session)
                                                                           : nullptr;
  }

  const Worker* worker_of(std::uint64_t session) const {
    const auto worker =
        std::find_if(workers_.begin(), workers_.end(), [&](const Worker& one) { return one.session == session; });
    return session == 0 || worker == workers_.end() ? nullptr : &*worker;
  }

  // Whether they have the session's ticket, its worker sees.
  void bring_pages(Greeting& greeting) {
    const int sender = greeting.socket.get();
    const Worker* const worker = worker_of(greeting.preamble.session);
    if (!worker || !hand_over(greeting, *worker, {&sender, 1})) refuse_to_resume(greeting);
  }

  void resume_session(Greeting& greeting) {
    const int client = greeting.socket.get();
    const Worker* const worker = worker_to_resume(greeting);
    if (worker->peer.name != greeting.peer.name || !hand_over(greeting, *worker, {&client, 1}))
      refuse_to_resume(greeting);
  }

  void refuse_to_resume(Greeting& greeting) {
    if (greeting.security == channel::Security::plain) {
      say_and_leave(greeting, channel::Resumed{});
    } else {
      refuse(greeting, channel::Refusal::has_no_such_session);
    }
  }

  // Who comes anew is looked up at the door; this is for those who are here.
  void end_revoked() {
    try {
      const auto revoked = channel::revoked_in(channel::keys_folder());
      for (Worker& worker : workers_) {
        if (worker.peer.name.empty() || std::find(revoked.begin(), revoked.end(), worker.peer.name) == revoked.end())
          continue;
        worker.why = "its certificate was revoked";
        kill(worker.child.process, SIGKILL);
      }
    } catch (const channel::Lost& lost) {
      log::error("serve", "nobody's session was ended: {}", lost.what());
    }
  }

  void handle_signals() {
    signalfd_siginfo signal{};
    while (read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
      const bool terminal_is_gone = has_terminal_ && isatty(STDIN_FILENO) == 0;
      if (signal.ssi_signo == SIGHUP && !terminal_is_gone) {
        end_revoked();
        continue;
      }
      if (signal.ssi_signo == SIGCHLD) continue;
      drained_ = ending_ ? Clock::now() : Clock::now() + options_.drain;  // who says it twice doesn't want to wait
      ending_ = true;
    }
    int status = 0;
    for (pid_t process = 0; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
      for (Worker& one : workers_) {
        if (one.connecting == process) one.connecting = 0;
      }
      if (door_ && process == door_->process) lose_door();
      const auto worker = std::find_if(workers_.begin(), workers_.end(),
                                       [&](const Worker& one) { return one.child.process == process; });
      if (worker == workers_.end()) continue;
      note_end(*worker, status);
      workers_.erase(worker);
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
  std::vector<channel::Descriptor> listening_;
  std::vector<Greeting> greetings_;  // who came first is first
  std::optional<Child> door_;
  mutable std::optional<Leases> leases_;  // nothing if devices are not shared in turns
  MemoryShares memory_;
  MetricsDoor metrics_;
  std::map<std::string, Done> done_;  // by tenants, in sessions that have ended
  std::uint64_t sessions_started_ = 0;
  std::uint64_t all_refusals_ = 0;
  std::uint64_t greedy_ = 0;  // sessions that were ended for what they took
  std::uint64_t asked_ = 0;   // at the door, so often
  int refusals_ = 0;          // within a second
  Clock::time_point refusals_since_{};
  channel::Descriptor signals_;
  std::vector<Worker> workers_;
  sigset_t before_{};
  const bool has_terminal_ = isatty(STDIN_FILENO) == 1;
  bool ending_ = false;
  Clock::time_point drained_{};
};

}  // namespace

int serve(const ServeOptions& options) { return Server{options}.run(); }

}  // namespace grus::server
