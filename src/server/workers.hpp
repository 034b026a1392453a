// The sessions of a server: a worker process for each, and what it gets of the devices' time and memory. One worker is
// always ready, its drivers loaded, so that a new session waits for none of that.
#pragma once

#include <poll.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "channel/handshake.hpp"
#include "channel/status.hpp"
#include "server/audit.hpp"
#include "server/child.hpp"
#include "server/counters.hpp"
#include "server/handover.hpp"
#include "server/leases.hpp"
#include "server/memory_shares.hpp"
#include "server/peer.hpp"
#include "server/serve.hpp"
#include "server/stepping_aside.hpp"
#include "server/worker_folders.hpp"

namespace grus::server {

// Who has connected, and what it brought along.
struct Client {
  channel::Descriptor socket;
  Peer peer;
  channel::Preamble preamble{};
  channel::Slice slice{};  // with the area's file and what tells of its end
  std::array<channel::Descriptor, 2> area{};
  std::optional<channel::Secret> secret{};  // with TLS
};

class Workers {
 public:
  using json = nlohmann::ordered_json;

  // Workers have these signals blocked, and no others.
  Workers(const ServeOptions& options, const Audit& audit, const sigset_t& signals);

  void start_ready();
  std::size_t sessions() const;
  std::size_t sessions_of_tenant_of(const Peer& peer) const;  // where each is one by itself, of its host
  bool empty() const { return workers_.empty(); }

  bool start_session(const Client& client);
  const Peer* peer_of_session(std::uint64_t session) const;  // null if there is no such session
  // To the session that it names. Without the socket: that its client seems to come back. False if it isn't there.
  enum class Brings : bool { nothing, socket };
  bool hand_over(const Client& client, Brings brings) const;

  // What they ask, and who was too greedy.
  void add_to(std::vector<pollfd>& waited_for) const;
  void hear(std::span<const pollfd> heard);  // what add_to() added
  void share_out_memory();
  void kill_late();
  std::optional<int> patience() const;  // milliseconds, if something has to be looked at again

  void end_revoked();
  void end_all();
  void has_ended(pid_t process, int status, bool server_is_ending);

  json status(const Peer* only = nullptr);  // all of it, or only what is theirs
  // Empty, or why not.
  std::string change(const channel::TenantChange& change, const Peer& who);

 private:
  using Clock = std::chrono::steady_clock;

  struct Worker {
    Child child;
    SharedCounters counters;
    std::shared_ptr<const std::filesystem::path> folder;  // null if what is cached is shared
    std::uint64_t session = 0;                            // 0: it waits for a client
    Peer peer{};
    Clock::time_point since{};
    std::string tenant{};
    std::uint64_t asked = 0;  // the number of its request for room
    Clock::time_point used_at() const { return Clock::time_point{std::chrono::nanoseconds{counters->used_at.load()}}; }
    pid_t connecting = 0;              // the process that does so for it; 0: none
    std::string why{};                 // the server ended it
    std::uint64_t makes_room_for = 0;  // a session, once it has ended
    std::optional<Clock::time_point> ends{};

    bool is_ready() const { return session == 0 && makes_room_for == 0; }
    json facts() const;
  };

  // What sessions did, in all.
  struct Done {
    std::uint64_t commands = 0;
    std::uint64_t moved_out = 0;
    std::uint64_t moved_in = 0;
    Done& operator+=(const Counters& more);
  };

  const Worker* worker_of(std::uint64_t session) const;
  bool hand_over(const Client& client, const Worker& worker, std::span<const int> descriptors) const;
  void note_start(Worker& worker, const Peer& peer);
  void note_end(const Worker& worker, int status, bool server_is_ending);
  json facts_of(const Worker& worker);
  json tenants_for(const Peer* only);

  void hear_worker(Worker& worker);
  void connect_for(Worker& worker, const Request& wanted) const;
  std::uint64_t swap_left() const;
  bool give_up_ready(std::uint64_t session);
  void make_room_for_contexts();
  void end_greedy();
  static void end_session(Worker& worker, const std::string& why);

  const ServeOptions& options_;
  const Audit& audit_;
  const sigset_t signals_;
  std::optional<WorkerFolders> folders_;
  std::vector<Worker> workers_;
  std::optional<Leases> leases_;  // nothing if devices are not shared in turns
  MemoryShares memory_;
  SteppingAside aside_;
  bool has_ready_contexts_ = true;    // those that wait for clients, while drivers have room for that
  std::map<std::string, Done> done_;  // by tenants, in sessions that have ended
  std::uint64_t sessions_started_ = 0;
  std::uint64_t greedy_ = 0;  // sessions that were ended for what they took
};

}  // namespace grus::server
