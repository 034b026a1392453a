#include "vm/migration.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace grus::vm {
namespace {

using namespace std::chrono_literals;

constexpr auto kForSessions = 600s;  // to copy what they have
constexpr auto kForCommands = 120s;  // to load and unload a driver
constexpr auto kForTheAgent = 15s;   // to be there
constexpr auto kBetweenQuestions = 200ms;

using Kind = MigrationOrder::Kind;

// One end: a QEMU, and the guest in it.
class End {
 public:
  End(const Machine& machine, Timeline& timeline, const MigrationOrder& order)
      : machine_{machine}, timeline_{timeline}, order_{order}, qmp_{machine.qmp}, agent_{machine.agent} {}

  Qmp& qmp() { return qmp_; }
  const Machine& machine() const { return machine_; }
  json greet() { return agent_.wait_until_there(Clock::now() + kForTheAgent); }

  // Programs leave the card. If this fails they are where they were.
  json leave() {
    return order_.kind == Kind::live ? ask("programs leave for the proxy", "move", kForSessions)
                                     : ask("programs are suspended", "suspend", kForSessions);
  }
  json come_back(const json& left) {
    return order_.kind == Kind::live ? ask("programs return", "return", kForSessions, left)
                                     : ask("programs are resumed", "resume", kForSessions, left);
  }
  void resume_at_proxy(const json& left) { ask("programs are resumed at the proxy", "resume_at", kForSessions, left); }
  void unload() { ask("the guest unloads the driver", "unload", kForCommands); }
  void load() { ask("the guest loads the driver", "load", kForCommands); }

  bool has_gpu() { return !machine_.gpu.empty() && qmp_.has_device(machine_.gpu_id()); }

  void detach() {
    if (!has_gpu()) return;
    timeline_.step("device_del", [&] {
      qmp_.forget_events();
      qmp_.execute("device_del", {{"id", machine_.gpu_id()}});
      const auto event = qmp_.wait_for(
          [&](const json& one) {
            const std::string name = one.value("event", "");
            return (name == "DEVICE_DELETED" || name == "DEVICE_UNPLUG_GUEST_ERROR") &&
                   one["data"].value("device", "") == machine_.gpu_id();
          },
          Clock::now() + order_.unplug);
      if (!event) throw Failed{fmt::format("the guest didn't let go of the card within {} s", order_.unplug.count())};
      if (event->value("event", "") != "DEVICE_DELETED") throw Failed{"the guest refuses to let go of the card"};
    });
  }
  void attach() {
    if (machine_.gpu.empty() || has_gpu()) return;
    timeline_.step("device_add", [&] { qmp_.execute("device_add", machine_.gpu); });
  }

 private:
  json ask(const char* step, const char* command, std::chrono::seconds limit, const json& left = json::array()) {
    return timeline_.step(step, [&] {
      return agent_.ask(timeline_, {{"command", command}, {"address", order_.proxy}, {"left", left}}, limit);
    });
  }

  const Machine& machine_;
  Timeline& timeline_;
  const MigrationOrder& order_;
  Qmp qmp_;
  Agent agent_;
};

// Where the programs are in the end, in words and for scripts.
struct Settled {
  std::string gpu;  // "card", "proxy" or "none"
  std::string text;
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
        if (has_gone_ && is_there(to)) {
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
      if (source_.gpu.empty()) throw Failed{fmt::format("the file names no gpu for {}", source_.name)};
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
    const std::string here = from.qmp().status();
    const std::string there = to.qmp().status();
    const std::string& name = to.machine().name;
    if (here != "running") throw Failed{fmt::format("{} isn't running: QEMU says {}", source_.name, here)};
    if (there != "inmigrate")
      throw Failed{
          fmt::format("{} doesn't wait for a machine, which QEMU's -incoming makes it do: it says {}", name, there)};
    // QEMU 7.2 sends it along, but under emulation loses pages of the guest's own memory where there is one.
    if (from.qmp().has_shared_memory())
      throw Failed{
          fmt::format("{0} has a shared-memory device, which can't travel: move its programs (`grus move`), and "
                      "take the device away (device_del); the guest runs at {0}, as before",
                      source_.name)};
    if (to.machine().incoming.empty()) throw Failed{fmt::format("the file doesn't say where {} waits: incoming", name)};
    if (!source_.gpu.empty() && to.machine().gpu.empty())
      throw Failed{fmt::format("the file names no gpu for {}, where the programs could return to", name)};
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
      Qmp& qmp = from.qmp();
      // With the return path QEMU is done only when the other side has understood everything.
      qmp.execute("migrate-set-capabilities",
                  {{"capabilities",
                    {{{"capability", "events"}, {"state", true}}, {{"capability", "return-path"}, {"state", true}}}}});
      qmp.forget_events();
      qmp.execute("migrate", {{"uri", to.machine().incoming}});
      follow(qmp);
      has_gone_ = true;
      wait_until_it_runs(to.qmp());
      json done = qmp.execute("query-migrate");
      while (!done.contains("downtime")) done = qmp.execute("query-migrate");  // the event comes before the numbers
      answer_["migration"] = {{"downtime_ms", done.value("downtime", 0)},
                              {"total_ms", done.value("total-time", 0)},
                              {"ram_bytes", done.value("ram", json::object()).value("transferred", std::uint64_t{0})}};
    });
  }

  void follow(Qmp& qmp) {
    std::string phase = "setup";
    auto since = Clock::now();
    bool is_cancelling = false;
    for (;;) {
      const auto event = qmp.wait_for([](const json& one) { return one.value("event", "") == "MIGRATION"; },
                                      Clock::now() + kBetweenQuestions);
      if (cancelled_ && !is_cancelling) {
        is_cancelling = true;
        qmp.execute("migrate_cancel");
      }
      if (!event) continue;
      timeline_.add("QEMU", phase, since, Clock::now());
      phase = (*event)["data"].value("status", "");
      since = Clock::now();
      if (phase == "completed") return;
      if (phase == "cancelled") throw Failed{"cancelled"};
      if (phase == "failed") {
        throw Failed{fmt::format("QEMU's migration failed: {}",
                                 qmp.execute("query-migrate").value("error-desc", "it doesn't say why"))};
      }
    }
  }

  // Whether its QEMU lives, as far as can be told.
  static bool is_there(End& end) {
    try {
      (void)end.qmp().status();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  static void wait_until_it_runs(Qmp& qmp) {
    const auto until = Clock::now() + kForTheAgent;
    while (qmp.status() != "running") {
      if (Clock::now() > until) throw Failed{"the machine came, but doesn't run there"};
      (void)qmp.wait_for([](const json& one) { return one.value("event", "") == "RESUME"; },
                         Clock::now() + kBetweenQuestions);
    }
  }

  // The machine didn't go: let it run, with everything that it had.
  Settled back_at_source(End& end) {
    try {
      if (end.qmp().status() != "running") end.qmp().execute("cont");
    } catch (const std::exception& error) {
      return {"none", fmt::format("the guest can't be continued at {}: {}", source_.name, error.what())};
    }
    return settle(end);
  }

  void arrive(End& end) {
    const Settled settled = settle(end);
    if (settled.gpu != "card") throw Failed{settled.text};
  }

  // Card, driver and programs; what can't be had of it is in the text.
  Settled settle(End& end) {
    Settled settled = try_to_settle(end);
    answer_["gpu"] = settled.gpu;
    return settled;
  }
  Settled try_to_settle(End& end) {
    const std::string runs = fmt::format("the guest runs at {}", end.machine().name);
    try {
      end.attach();
      timeline_.step("greet the agent", [&] { return end.greet(); });
      if (end.has_gpu()) end.load();
    } catch (const std::exception& error) {
      return without_card(end, fmt::format("{}, without its card: {}", runs, error.what()));
    }
    try {
      answer_["returned"] = end.come_back(left())["sessions"];
      note_ended();
    } catch (const std::exception& error) {
      return {"card", fmt::format("{}, with its card, but not all programs came back: {}", runs, error.what())};
    }
    return {"card", fmt::format("{}, with its card and its programs on it", runs)};
  }
  json left() const { return answer_.value("sessions", json::array()); }
  // By themselves, or because the proxy was lost: who left and is nowhere to be found.
  void note_ended() {
    json ended = json::array();
    for (const json& one : left()) {
      const json& back = answer_["returned"];
      const bool is_back =
          std::any_of(back.begin(), back.end(), [&](const json& other) { return other["pid"] == one["pid"]; });
      if (!is_back) ended.push_back(fmt::format("{}[{}]", one.value("program", ""), one.value("pid", 0)));
    }
    if (!ended.empty()) answer_["ended"] = std::move(ended);
  }
  Settled without_card(End& end, const std::string& why) {
    if (order_.proxy.empty()) return {"none", fmt::format("{}; its programs are suspended", why)};
    try {
      if (order_.kind == Kind::stop_and_copy) end.resume_at_proxy(left());
    } catch (const std::exception& error) {
      return {"none", fmt::format("{}; its programs are suspended: {}", why, error.what())};
    }
    return {"proxy", fmt::format("{}; its programs go on at {}. `grus vm attach-gpu {}` brings them back", why,
                                 order_.proxy, end.machine().name)};
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
