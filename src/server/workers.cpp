#include "server/workers.hpp"

#include <pwd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "channel/address.hpp"
#include "channel/keys.hpp"
#include "channel/pass.hpp"
#include "objects/below.hpp"

namespace grus::server {
namespace {

constexpr std::chrono::seconds kPatienceWithPeers{2};
constexpr std::chrono::milliseconds kTimeToEnd{500};      // for a worker that has to say why it ends
constexpr int kMostRequests = 64;                         // of a worker, before others are heard
constexpr std::uint64_t kSlack = std::uint64_t{1} << 30;  // bytes more than were asked for, where nobody counts

bool is_tenant_by_itself(const Peer& peer) { return peer.name.empty() && !peer.user; }

// Who is behind a session: by certificate, by user, or nobody knows and each is one by itself.
std::string tenant_of(const Peer& peer, std::uint64_t session) {
  if (!peer.name.empty()) return peer.name;
  if (is_tenant_by_itself(peer)) return fmt::format("session-{:08x}", session >> 32U);
  const passwd* const entry = getpwuid(*peer.user);
  return entry ? entry->pw_name : std::to_string(*peer.user);
}

// Whose sessions are counted together: of a host, where nobody knows who is behind them.
std::string counted_with(const Peer& peer) {
  return is_tenant_by_itself(peer) ? peer.address.substr(0, peer.address.rfind(':')) : tenant_of(peer, 0);
}

void say(const Child& worker, const MemoryWord& word) {
  (void)channel::pass(worker.control.get(), Handover{.preamble = {}, .memory = word}, {});
}

void give_connection(const Child& worker, const channel::Descriptor& socket) {
  const int number = socket.get();
  (void)channel::pass(worker.control.get(), Handover{.preamble = {}, .is_connection = 1},
                      {&number, number < 0 ? 0U : 1U});
}

}  // namespace

Workers::json Workers::Worker::facts() const {
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since);
  json all = {{"session", fmt::format("{:016x}", session)},
              {"peer", peer.json()},
              {"tenant", tenant},
              {"worker", child.process},
              {"seconds", static_cast<double>(age.count()) / 1000}};
  all.update(to_json(*counters));
  return all;
}

Workers::Done& Workers::Done::operator+=(const Counters& more) {
  commands += more.commands.load();
  moved_out += more.moved_out.load();
  moved_in += more.moved_in.load();
  return *this;
}

Workers::Workers(const ServeOptions& options, const Audit& audit, const sigset_t& signals)
    : options_{options}, audit_{audit}, signals_{signals}, memory_{{options.memory, options.memory_shares}} {
  if (!options.shared_cache) folders_.emplace();
  if (options.shares) leases_.emplace(options.time_limit);
  for (const auto& [tenant, terms] : options.tenants) {
    memory_.set_terms(tenant, terms);
    if (leases_) leases_->set_terms(tenant, terms);
  }
}

void Workers::start_ready() {
  auto counters = SharedCounters::make();
  if (!counters) return log::error("serve", "a worker can't be started: {}", std::strerror(errno));
  auto folder = folders_ ? folders_->add() : nullptr;
  std::vector<std::string> command = options_.worker;
  if (folder) command.push_back("--caches=" + folder->string());
  if (!has_ready_contexts_) command.emplace_back("--no-ready-contexts");
  if (auto child = start_child(command, signals_))
    workers_.push_back({std::move(*child), std::move(counters), std::move(folder)});
}

std::size_t Workers::sessions() const {
  return static_cast<std::size_t>(
      std::count_if(workers_.begin(), workers_.end(), [](const Worker& one) { return one.session != 0; }));
}

std::size_t Workers::sessions_of_tenant_of(const Peer& peer) const {
  const std::string who = counted_with(peer);
  return static_cast<std::size_t>(std::count_if(workers_.begin(), workers_.end(), [&](const Worker& one) {
    return one.session != 0 && counted_with(one.peer) == who;
  }));
}

const Workers::Worker* Workers::worker_of(std::uint64_t session) const {
  const auto worker =
      std::find_if(workers_.begin(), workers_.end(), [&](const Worker& one) { return one.session == session; });
  return session == 0 || worker == workers_.end() ? nullptr : &*worker;
}

const Peer* Workers::peer_of_session(std::uint64_t session) const {
  const Worker* const worker = worker_of(session);
  return worker ? &worker->peer : nullptr;
}

bool Workers::hand_over(const Client& client, Brings brings) const {
  const int socket = client.socket.get();
  const Worker* const worker = worker_of(client.preamble.session);
  return worker && hand_over(client, *worker, {&socket, brings == Brings::socket ? 1U : 0U});
}

bool Workers::hand_over(const Client& client, const Worker& worker, std::span<const int> descriptors) const {
  const Handover what{client.preamble,
                      worker.session,
                      static_cast<std::uint64_t>(options_.grace.count()),
                      0,
                      client.secret.value_or(channel::Secret{}),
                      {},
                      {},
                      memory_.quota_of(worker.tenant),
                      memory_.part_of(worker.tenant),
                      options_.swap != 0 ? 1U : 0U,
                      client.slice};
  return channel::pass(worker.child.control.get(), what, descriptors);
}

// A worker that has died since it was started is replaced once; its client would have to wait for ever.
bool Workers::start_session(const Client& client) {
  bool started = false;
  for (int attempt = 0; attempt < 2 && !started; ++attempt) {
    const auto ready = std::find_if(workers_.begin(), workers_.end(), [](const auto& one) { return one.is_ready(); });
    if (ready != workers_.end()) {
      (void)!getrandom(&ready->session, sizeof ready->session, 0);
      channel::Descriptor bell = leases_ ? Leases::new_bell() : channel::Descriptor{};
      std::vector<int> descriptors{client.socket.get(), ready->counters.descriptor()};
      if (client.slice.size != 0) descriptors.insert(descriptors.end(), {client.area[0].get(), client.area[1].get()});
      if (leases_) descriptors.push_back(bell.get());
      ready->tenant = tenant_of(client.peer, ready->session);
      started = hand_over(client, *ready, descriptors);
      if (started) {
        note_start(*ready, client.peer);
        memory_.add(ready->session, ready->tenant);
        if (leases_) leases_->add(ready->session, ready->tenant, ready->counters, std::move(bell));
      } else {
        workers_.erase(ready);
      }
    }
    start_ready();
  }
  return started;
}

void Workers::note_start(Worker& worker, const Peer& peer) {
  worker.peer = peer;
  worker.since = Clock::now();
  ++sessions_started_;
  audit_.note(
      "connect",
      {{"peer", peer.json()}, {"session", fmt::format("{:016x}", worker.session)}, {"worker", worker.child.process}});
}

void Workers::note_end(const Worker& worker, int status, bool server_is_ending) {
  if (WIFSIGNALED(status) && !server_is_ending)
    log::warn("serve", "worker {} was ended by signal {}", worker.child.process, WTERMSIG(status));
  if (worker.session == 0) return;
  json facts = facts_of(worker);
  const std::string why = why_ended(*worker.counters);
  facts["why"] = !worker.why.empty()   ? worker.why
                 : !why.empty()        ? why
                 : server_is_ending    ? "the server ended"
                 : WIFSIGNALED(status) ? fmt::format("the worker was ended by signal {}", WTERMSIG(status))
                                       : "the driver ended the worker";
  audit_.note("end", facts);
  memory_.remove(worker.session);
  aside_.remove(worker.session);
  done_[worker.tenant] += *worker.counters;
  if (is_tenant_by_itself(worker.peer)) {
    memory_.forget(worker.tenant);
    done_.erase(worker.tenant);
  }
  if (!leases_) return;
  leases_->remove(worker.session);
  if (is_tenant_by_itself(worker.peer)) leases_->forget_tenant(worker.tenant);
}

void Workers::has_ended(pid_t process, int status, bool server_is_ending) {
  for (Worker& one : workers_) {
    if (one.connecting == process) one.connecting = 0;
  }
  const auto worker =
      std::find_if(workers_.begin(), workers_.end(), [&](const Worker& one) { return one.child.process == process; });
  if (worker == workers_.end()) return;
  const std::uint64_t makes_room_for = worker->makes_room_for;
  if (makes_room_for == 0) note_end(*worker, status, server_is_ending);
  workers_.erase(worker);
  if (makes_room_for == 0) return;
  start_ready();
  if (const Worker* const asked = worker_of(makes_room_for))
    say(asked->child, {MemoryWord::What::made_room, 0, asked->asked, 0, swap_left(), 0});
}

void Workers::end_all() {
  for (Worker& worker : workers_) end_session(worker, "the server ended");
}

void Workers::add_to(std::vector<pollfd>& waited_for) const {
  waited_for.push_back({leases_ ? leases_->greedy() : -1, POLLIN, 0});
  for (const Worker& worker : workers_) waited_for.push_back({worker.child.control.get(), POLLIN, 0});
}

void Workers::hear(std::span<const pollfd> heard) {
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    if (heard[index + 1].revents & POLLIN) hear_worker(workers_[index]);
  }
  if (heard[0].revents) end_greedy();
}

std::optional<int> Workers::patience() const {
  if (std::any_of(workers_.begin(), workers_.end(), [](const Worker& one) { return one.ends.has_value(); })) return 50;
  if (memory_.waits() || aside_.waits()) return 100;
  return std::nullopt;
}

// It could say anything.
void Workers::hear_worker(Worker& worker) {
  Request request{};
  for (int left = kMostRequests; left > 0 && recv(worker.child.control.get(), &request, sizeof request, MSG_DONTWAIT) ==
                                                 static_cast<ssize_t>(sizeof request);
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
        say(worker.child, {MemoryWord::What::total, 0, request.number, total, 0, quota});
        break;
      }
      case What::less:
        memory_.return_total(worker.session, request.bytes);
        break;
      case What::room:
        worker.asked = request.number;
        if (!memory_.ask_room(worker.session, request.device, request.bytes, request.must != 0))
          say(worker.child, {MemoryWord::What::refused, request.device, request.number, 0, 0, 0});
        break;
      case What::context:
        worker.asked = request.number;
        if (!give_up_ready(worker.session)) aside_.want(worker.session, Clock::now());
        break;
      case What::moved_out:
        memory_.moved_out(worker.session, request.device, request.bytes);
        break;
    }
  }
}

std::uint64_t Workers::swap_left() const {
  std::uint64_t left = options_.swap;
  for (const Worker& worker : workers_) left -= std::min(left, worker.counters->swap_used.load());
  return left;
}

void Workers::share_out_memory() {
  using What = MemoryShares::Action::What;
  const auto used_at = [this](std::uint64_t session) {
    const Worker* const worker = worker_of(session);
    return worker ? worker->used_at() : Clock::time_point{};
  };
  for (const auto& [what, session, device, bytes] : memory_.decide(Clock::now(), used_at)) {
    const Worker* const worker = worker_of(session);
    if (!worker) continue;
    const auto word = what == What::grant    ? MemoryWord::What::granted
                      : what == What::refuse ? MemoryWord::What::refused
                                             : MemoryWord::What::move_out;
    say(worker->child, {word, device, what == What::move_out ? 0 : worker->asked, bytes, swap_left(), 0});
  }
  make_room_for_contexts();
}

// A context that nobody uses yet goes first, and there are none like it from then on.
bool Workers::give_up_ready(std::uint64_t session) {
  if (!std::exchange(has_ready_contexts_, false)) return false;
  const auto ready = std::find_if(workers_.begin(), workers_.end(), [](const Worker& one) { return one.is_ready(); });
  if (ready == workers_.end()) return false;
  ready->makes_room_for = session;
  kill(ready->child.process, SIGKILL);
  return true;
}

void Workers::make_room_for_contexts() {
  if (!aside_.waits()) return;
  std::vector<SteppingAside::Look> sessions;
  for (const Worker& worker : workers_) {
    const bool has_context = worker.counters->objects[static_cast<std::size_t>(ObjectType::context)].load() != 0;
    if (worker.session != 0 && has_context)
      sessions.push_back(
          {worker.session, worker.counters->commands.load() + worker.counters->round_trips.load(), worker.used_at()});
  }
  using What = SteppingAside::Action::What;
  for (const auto& [what, session] : aside_.decide(Clock::now(), sessions)) {
    const Worker* const worker = worker_of(session);
    if (!worker) continue;
    if (what == What::ask) audit_.note("asked to step aside", {{"session", fmt::format("{:016x}", session)}});
    const auto word = what == What::ask     ? MemoryWord::What::step_aside
                      : what == What::grant ? MemoryWord::What::made_room
                                            : MemoryWord::What::refused;
    say(worker->child, {word, 0, what == What::ask ? 0 : worker->asked, 0, swap_left(), 0});
  }
}

// In a process of its own, one at a time: whoever is to answer may take long. The worker gets no connection to others
// than servers: it would be one of this user's, who may do more there than a worker.
void Workers::connect_for(Worker& worker, const Request& wanted) const {
  const std::string address{wanted.address, strnlen(wanted.address, sizeof wanted.address)};
  audit_.note("connect to", {{"session", fmt::format("{:016x}", worker.session)}, {"address", address}});
  const bool may = options_.direct && worker.connecting == 0;
  const pid_t child = may ? fork() : -1;
  if (child < 0) return give_connection(worker.child, {});
  if (child > 0) {
    worker.connecting = child;
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Nobody else's: where the server listens, another may want to when it has ended.
  const auto own = static_cast<unsigned>(worker.child.control.get());
  if (own > 3) close_range(3, own - 1, 0);
  close_range(own + 1, ~0U, 0);
  channel::Descriptor socket;
  try {
    auto connected = channel::connect_to(channel::Address::parse(address), kPatienceWithPeers);
    channel::ask_for_pages(connected, wanted.security, wanted.session, kPatienceWithPeers);
    socket = std::move(connected);
  } catch (const std::exception&) {  // nobody is there, or no server that has the session
  }
  give_connection(worker.child, socket);
  _exit(0);
}

void Workers::end_greedy() {
  for (const std::uint64_t session : leases_->take_greedy()) {
    for (Worker& worker : workers_) {
      if (worker.session != session) continue;
      end_session(worker, fmt::format("a command of it took longer than {} s while others waited for the device",
                                      options_.time_limit.count()));
      ++greedy_;
    }
  }
}

// Its client is told why, if the worker can still do that.
void Workers::end_session(Worker& worker, const std::string& why) {
  if (worker.ends) return;
  worker.why = why;
  Handover what{.preamble = {}};
  why.copy(what.why_it_ends, sizeof what.why_it_ends - 1);
  const bool is_told = worker.session != 0 && channel::pass(worker.child.control.get(), what, {});
  worker.ends = Clock::now() + (is_told ? kTimeToEnd : std::chrono::milliseconds{0});
}

void Workers::kill_late() {
  for (Worker& worker : workers_) {
    if (worker.ends && *worker.ends <= Clock::now()) kill(worker.child.process, SIGKILL);
  }
}

// Who comes anew is looked up at the door; this is for those who are here.
void Workers::end_revoked() {
  try {
    const auto revoked = channel::revoked_in(channel::keys_folder());
    for (Worker& worker : workers_) {
      if (worker.peer.name.empty() || std::find(revoked.begin(), revoked.end(), worker.peer.name) == revoked.end())
        continue;
      end_session(worker, "its certificate was revoked");
    }
  } catch (const channel::Lost& lost) {
    log::error("serve", "nobody's session was ended: {}", lost.what());
  }
}

// All of it, or only what is theirs.
Workers::json Workers::status(const Peer* only) {
  json answer = {{"shares", leases_.has_value()},
                 {"limits", memory_.has_limits()},
                 {"sessions_started", sessions_started_},
                 {"sessions_ended_for_greed", greedy_},
                 {"swap_bytes", options_.swap},
                 {"swap_used_bytes", options_.swap - swap_left()},
                 {"devices", json::array()},
                 {"sessions", json::array()}};
  for (const auto& [device, capacity, free] : memory_.rooms())
    answer["devices"].push_back({{"device", device}, {"memory_bytes", capacity}, {"free_bytes", free}});
  for (const Worker& worker : workers_) {
    if (worker.session != 0 && (!only || counted_with(worker.peer) == counted_with(*only)))
      answer["sessions"].push_back(facts_of(worker));
  }
  answer["tenants"] = tenants_for(only);
  return answer;
}

Workers::json Workers::facts_of(const Worker& worker) {
  json facts = worker.facts();
  if (leases_) facts.update(leases_->session_json(worker.session));
  return facts;
}

Workers::json Workers::tenants_for(const Peer* only) {
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

std::string Workers::change(const channel::TenantChange& change, const Peer& who) {
  const std::string tenant{change.tenant.data(), strnlen(change.tenant.data(), change.tenant.size())};
  if (!leases_ && (change.weight != 0 || change.cap != 0))
    return "it doesn't share out its devices: start it with --shares";
  if (tenant.empty() || change.weight > TenantTerms::kMostWeight || change.cap > 100) return "that makes no sense";
  TenantTerms terms = memory_.terms(tenant);
  if (change.weight != 0) terms.weight = change.weight;
  if (change.cap != 0) terms.cap = change.cap;
  if (change.memory != 0) terms.memory = change.memory == channel::TenantChange::kNoQuota ? 0 : change.memory;
  memory_.set_terms(tenant, terms);
  // What their sessions may have and don't use, they have to ask for again.
  for (const Worker& worker : workers_) {
    if (change.memory == 0 || worker.session == 0 || worker.tenant != tenant) continue;
    memory_.return_total(worker.session, worker.counters->memory.load());
    worker.counters->quotas.fetch_add(1, std::memory_order_release);
  }
  if (leases_) leases_->set_terms(tenant, terms);
  audit_.note("change", {{"peer", who.json()},
                         {"tenant", tenant},
                         {"weight", terms.weight},
                         {"cap_percent", terms.cap},
                         {"memory_bytes", terms.memory}});
  return {};
}

}  // namespace grus::server
