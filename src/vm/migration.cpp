#include "vm/migration.hpp"

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "vm/hypervisor.hpp"

namespace grus::vm {
namespace {

using namespace std::chrono_literals;

constexpr auto kForSessions = 600s;  // to copy what they have
constexpr auto kForCommands = 120s;  // to load and unload a driver
constexpr auto kForTheAgent = 15s;   // to be there
constexpr auto kBetweenLooks = 20ms;

using Kind = MigrationOrder::Kind;

// One end: a QEMU, and the guest in it.
class End {
 public:
  End(const Machine& machine, Timeline& timeline, const MigrationOrder& order)
      : machine_{machine}, timeline_{timeline}, order_{order}, hypervisor_{hypervisor_of(machine)} {}

  Hypervisor& hypervisor() { return *hypervisor_; }
  const Machine& machine() const { return machine_; }
  json greet() { return agent().wait_until_there(Clock::now() + kForTheAgent); }

  // Programs leave the card. If this fails they are where they were.
  json leave() {
    return order_.kind == Kind::live ? ask("programs leave for the proxy", "move", kForSessions)
                                     : ask("programs are suspended", "suspend", kForSessions);
  }
  json come_back(const json& left) {
    return order_.kind == Kind::live ? insist("programs return", "return", kForSessions, left)
                                     : insist("programs are resumed", "resume", kForSessions, left);
  }
  void resume_at_proxy(const json& left) {
    insist("programs are resumed at the proxy", "resume_at", kForSessions, left);
  }
  void unload() { ask("the guest unloads the driver", "unload", kForCommands); }
  void load() { insist("the guest loads the driver", "load", kForCommands); }

  bool has_gpu() { return hypervisor_->has_gpu(); }
  void detach() {
    if (has_gpu()) timeline_.step("device_del", [&] { hypervisor_->detach_gpu(order_.unplug); });
  }
  void attach() {
    if (machine_.is_given_card() && !has_gpu()) timeline_.step("device_add", [&] { hypervisor_->attach_gpu(); });
  }

 private:
  // `left` is who is meant; null: nobody knows, so all.
  json ask(const char* step, const char* command, std::chrono::seconds limit, const json& left = {}) {
    json request = {{"command", command}, {"address", order_.proxy}};
    if (!left.is_null()) request["left"] = left;
    return timeline_.step(step, [&] { return agent().ask(timeline_, request, limit); });
  }
  // For what can be repeated: if the agent is ended meanwhile, the next one goes on.
  json insist(const char* step, const char* command, std::chrono::seconds limit, const json& left = {}) {
    try {
      return ask(step, command, limit, left);
    } catch (const Gone&) {
      timeline_.step("greet the agent", [&] { return greet(); });
      return ask(step, command, limit, left);
    }
  }
  // Of a guest that comes it is known only then.
  Agent& agent() {
    if (!agent_) agent_.emplace(hypervisor_->agent_socket());
    return *agent_;
  }

  const Machine& machine_;
  Timeline& timeline_;
  const MigrationOrder& order_;
  std::unique_ptr<Hypervisor> hypervisor_;
  std::optional<Agent> agent_;
};

// Where the programs are in the end, in words and for scripts.
struct Settled {
  std::string gpu;  // "card", "host" for a machine that has none, "proxy" or "none"
  std::string text;
  bool all_are_back = false;
};

class Migration {
 public:
  Migration(const Machine& source, const MigrationOrder& order, const std::atomic<bool>& cancelled)
      : source_{source}, order_{order}, cancelled_{cancelled} {
    answer_ = {{"ok", true}, {"machine", source.name}, {"runs_at", source.name}};
    timeline_.on_step(order.on_step);
  }

  json run(const Machine& destination) {
    return guarded([&] {
      End from{source_, timeline_, order_};
      End to{destination, timeline_, order_};
      check(from, to);
      give_up_card(from);
      try {
        travel(from, to);
      } catch (const std::exception& error) {
        // Two that run with the same disks would be the end of both.
        if (may_run(to)) {
          throw Failed{fmt::format("{}; QEMU has handed the guest over to {}, so it isn't continued at {}: see there",
                                   error.what(), destination.name, source_.name)};
        }
        throw Failed{fmt::format("{}; {}", error.what(), back_at_source(from).text)};
      }
      answer_["runs_at"] = destination.name;
      arrive(to);
    });
  }

  json detach() {
    return guarded([&] {
      End end{source_, timeline_, order_};
      if (!end.has_gpu()) throw Failed{fmt::format("{} has no card that could be taken away", source_.name)};
      greet(end);
      give_up_card(end);
      answer_["gpu"] = order_.kind == Kind::live ? "proxy" : "none";
    });
  }

  json attach() {
    return guarded([&] {
      End end{source_, timeline_, order_};
      if (!source_.is_given_card()) throw Failed{fmt::format("the file names no gpu for {}", source_.name)};
      arrive(end);
    });
  }

 private:
  template <typename Body>
  json guarded(Body body) {
    try {
      body();
    } catch (const std::exception& error) {
      answer_["ok"] = false;
      answer_["error"] = error.what();
    }
    answer_["began"] = timeline_.seconds_since_epoch();
    answer_["steps"] = timeline_.steps();
    return answer_;
  }

  // Before anything happens.
  void check(End& from, End& to) {
    const Machine& destination = to.machine();
    if (source_.libvirt.empty() != destination.libvirt.empty() || source_.domain != destination.domain)
      throw Failed{fmt::format("{} and {} must both be of libvirt, with the same domain, or neither", source_.name,
                               destination.name)};
    const std::string here = from.hypervisor().status();
    if (here != "running") throw Failed{fmt::format("{} isn't running: QEMU says {}", source_.name, here)};
    from.hypervisor().check_it_can_leave();
    to.hypervisor().check_it_can_come();
    if (source_.is_given_card() && !destination.is_given_card())
      throw Failed{fmt::format("the file names no gpu for {}, where the programs could return to", destination.name)};
    greet(from);
  }

  // Who is where, should the agent be ended before it can tell who left.
  void greet(End& end) {
    const json hello = timeline_.step("greet the agent", [&] { return end.greet(); });
    json sessions = json::array();
    for (const json& one : hello.value("programs", json::array())) {
      if (one.value("at", "") == "suspended") continue;
      sessions.push_back({{"pid", one["pid"]}, {"program", one["program"]}, {"from", one["at"]}, {"ok", true}});
    }
    answer_["sessions"] = std::move(sessions);
  }

  // Programs, driver and card. Whatever fails, all of it is there again.
  void give_up_card(End& end) {
    try {
      leave(end);
    } catch (const Gone& gone) {  // the agent was ended meanwhile: what it had begun is cancelled, or done
      throw Failed{fmt::format("{}; {}", gone.what(), settle(end).text)};
    } catch (const Failed& failed) {
      throw Failed{fmt::format("{}; the guest runs on at {}, as before", failed.what(), source_.name)};
    }
    try {
      stop_if_cancelled();
      if (end.has_gpu()) end.unload();
      end.detach();
      stop_if_cancelled();
    } catch (const std::exception& error) {
      throw Failed{fmt::format("{}; {}", error.what(), settle(end).text)};
    }
  }

  // If there is no room for them at the proxy, they wait in the guest's memory.
  void leave(End& end) {
    try {
      answer_["sessions"] = end.leave()["sessions"];
    } catch (const NoRoom& no_room) {
      if (!order_.falls_back || order_.kind != Kind::live) throw;
      answer_["fell_back"] = no_room.what();
      order_.kind = Kind::stop_and_copy;
      answer_["sessions"] = end.leave()["sessions"];
    }
  }

  void stop_if_cancelled() const {
    if (cancelled_) throw Failed{"cancelled"};
  }

  // QEMU's own migration. When this returns, the machine is there.
  void travel(End& from, End& to) {
    timeline_.step("QEMU's migration", [&] {
      from.hypervisor().send_to(to.machine(), timeline_, cancelled_);
      has_gone_ = true;
      wait_until_it_runs(to.hypervisor());
      answer_["migration"] = from.hypervisor().figures_of_travel(to.machine());
    });
  }

  // Whether the guest may run there, as far as can be told.
  bool may_run(End& to) const {
    try {
      return to.hypervisor().status() == "running" || has_gone_;
    } catch (const std::exception&) {
      return has_gone_;
    }
  }

  static void wait_until_it_runs(Hypervisor& hypervisor) {
    const auto until = Clock::now() + kForTheAgent;
    while (hypervisor.status() != "running") {
      if (Clock::now() > until) throw Failed{"the machine came, but doesn't run there"};
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }

  // The machine didn't go: let it run, with everything that it had.
  Settled back_at_source(End& end) {
    try {
      if (end.hypervisor().status() != "running") end.hypervisor().resume();
    } catch (const std::exception& error) {
      return {"none", fmt::format("the guest can't be continued at {}: {}", source_.name, error.what())};
    }
    return settle(end);
  }

  void arrive(End& end) {
    const Settled settled = settle(end);
    if (!settled.all_are_back) throw Failed{settled.text};
  }

  // Card, driver and programs; what can't be had of it is in the text.
  Settled settle(End& end) {
    Settled settled = try_to_settle(end);
    answer_["gpu"] = settled.gpu;
    return settled;
  }
  Settled try_to_settle(End& end) {
    const bool is_given_card = end.machine().is_given_card();
    const char* const its_gpu = is_given_card ? "its card" : "the host's GPU";
    const std::string runs = fmt::format("the guest runs at {}", end.machine().name);
    try {
      end.attach();
      timeline_.step("greet the agent", [&] { return end.greet(); });
      if (end.has_gpu()) end.load();
    } catch (const std::exception& error) {
      return without_gpu(end, fmt::format("{}, without {}: {}", runs, its_gpu, error.what()));
    }
    const std::string gpu = is_given_card ? "card" : "host";
    try {
      answer_["returned"] = end.come_back(left())["sessions"];
      note_ended(end.greet()["programs"]);
    } catch (const std::exception& error) {
      return {gpu, fmt::format("{}, with {}, but not all programs came back: {}. {}", runs, its_gpu, error.what(),
                               how_to_return(end.machine(), order_.kind))};
    }
    return {gpu, fmt::format("{}, with {} and its programs on it", runs, its_gpu), true};
  }
  static std::string how_to_return(const Machine& machine, Kind kind) {
    const bool is_live = kind == Kind::live;
    if (!machine.is_given_card())
      return fmt::format("`grus {}` in the guest brings them back", is_live ? "move" : "resume");
    return fmt::format("`grus vm attach-gpu {}{}` brings them back", machine.name, is_live ? "" : " --stop-and-copy");
  }
  json left() const { return answer_.contains("sessions") ? answer_["sessions"] : json{}; }
  // By themselves, or because the proxy was lost: who left and is nowhere to be found.
  void note_ended(const json& programs) {
    json ended = json::array();
    for (const json& one : left()) {
      const bool is_there =
          std::any_of(programs.begin(), programs.end(), [&](const json& other) { return other["pid"] == one["pid"]; });
      if (!is_there) ended.push_back(fmt::format("{}[{}]", one.value("program", ""), one.value("pid", 0)));
    }
    if (!ended.empty()) answer_["ended"] = std::move(ended);
  }
  Settled without_gpu(End& end, const std::string& why) {
    if (order_.proxy.empty()) return {"none", fmt::format("{}; its programs are suspended", why)};
    try {
      if (order_.kind == Kind::stop_and_copy) end.resume_at_proxy(left());
    } catch (const std::exception& error) {
      return {"none", fmt::format("{}; its programs are suspended: {}", why, error.what())};
    }
    return {"proxy", fmt::format("{}; its programs go on at {}. {}", why, order_.proxy,
                                 how_to_return(end.machine(), Kind::live))};
  }

  const Machine& source_;
  MigrationOrder order_;
  const std::atomic<bool>& cancelled_;
  Timeline timeline_;
  bool has_gone_ = false;  // for QEMU
  json answer_;
};

}  // namespace

json migrate(const Machine& source, const Machine& destination, const MigrationOrder& order,
             const std::atomic<bool>& cancelled) {
  return Migration{source, order, cancelled}.run(destination);
}

json detach_gpu(const Machine& machine, const MigrationOrder& order) {
  const std::atomic<bool> never{false};
  return Migration{machine, order, never}.detach();
}

json attach_gpu(const Machine& machine, const MigrationOrder& order) {
  const std::atomic<bool> never{false};
  return Migration{machine, order, never}.attach();
}

}  // namespace grus::vm
