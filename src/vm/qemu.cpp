#include "vm/qemu.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace grus::vm {
namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenQuestions = 200ms;

}  // namespace

std::string Qemu::status() { return qmp_.execute("query-status").value("status", ""); }

void Qemu::check_it_can_leave() {
  if (has_shared_memory_of_others())
    throw Failed{fmt::format("{} has a shared-memory device that QEMU doesn't send along; it does with master=on",
                             machine_.name)};
}

void Qemu::check_it_can_come() {
  const std::string its_status = status();
  if (its_status != "inmigrate")
    throw Failed{fmt::format("{} doesn't wait for a machine, which QEMU's -incoming makes it do: it says {}",
                             machine_.name, its_status)};
  if (machine_.incoming.empty())
    throw Failed{fmt::format("the file doesn't say where {} waits: incoming", machine_.name)};
}

bool Qemu::has_gpu() {
  if (!machine_.is_given_card()) return false;
  const json devices = qmp_.execute("qom-list", {{"path", "/machine/peripheral"}});
  return std::any_of(devices.begin(), devices.end(),
                     [&](const json& one) { return one.value("name", "") == gpu_id(); });
}

bool Qemu::has_shared_memory_of_others() {
  for (const std::string folder : {"/machine/peripheral", "/machine/peripheral-anon"}) {
    for (const json& one : qmp_.execute("qom-list", {{"path", folder}})) {
      if (!one.value("type", "").starts_with("child<ivshmem")) continue;
      const std::string path = fmt::format("{}/{}", folder, one.value("name", ""));
      if (qmp_.execute("qom-get", {{"path", path}, {"property", "master"}}) != "on") return true;
    }
  }
  return false;
}

void Qemu::detach_gpu(std::chrono::seconds patience) {
  qmp_.forget_events();
  qmp_.execute("device_del", {{"id", gpu_id()}});
  const auto is_about_it = [&](const json& one) {
    const std::string name = one.value("event", "");
    return (name == "DEVICE_DELETED" || name == "DEVICE_UNPLUG_GUEST_ERROR") &&
           one["data"].value("device", "") == gpu_id();
  };
  const auto event = qmp_.wait_for(is_about_it, Clock::now() + patience);
  if (!event) throw Failed{fmt::format("the guest didn't let go of the card within {} s", patience.count())};
  if (event->value("event", "") != "DEVICE_DELETED") throw Failed{"the guest refuses to let go of the card"};
}

void Qemu::send_to(const Machine& destination, Timeline& timeline, const std::atomic<bool>& cancelled) {
  // With the return path QEMU is done only when the other side has understood everything.
  qmp_.execute("migrate-set-capabilities",
               {{"capabilities",
                 {{{"capability", "events"}, {"state", true}}, {{"capability", "return-path"}, {"state", true}}}}});
  qmp_.forget_events();
  qmp_.execute("migrate", {{"uri", destination.incoming}});
  follow_migration(timeline, cancelled);
}

void Qemu::follow_migration(Timeline& timeline, const std::atomic<bool>& cancelled) {
  std::string phase = "setup";
  auto since = Clock::now();
  bool is_cancelling = false;
  for (;;) {
    const auto event = qmp_.wait_for([](const json& one) { return one.value("event", "") == "MIGRATION"; },
                                     Clock::now() + kBetweenQuestions);
    if (cancelled && !is_cancelling) {
      is_cancelling = true;
      qmp_.execute("migrate_cancel");
    }
    if (!event) continue;
    timeline.add("QEMU", phase, since, Clock::now());
    phase = (*event)["data"].value("status", "");
    since = Clock::now();
    if (phase == "completed") return;
    if (phase == "cancelled") throw Failed{"cancelled"};
    if (phase == "failed") {
      throw Failed{fmt::format("QEMU's migration failed: {}",
                               qmp_.execute("query-migrate").value("error-desc", "it doesn't say why"))};
    }
  }
}

json Qemu::figures_of_travel(const Machine& /*destination*/) {
  json done = qmp_.execute("query-migrate");
  while (!done.contains("downtime")) done = qmp_.execute("query-migrate");  // the event comes before the numbers
  return {{"downtime_ms", done.value("downtime", 0)},
          {"total_ms", done.value("total-time", 0)},
          {"ram_bytes", done.value("ram", json::object()).value("transferred", std::uint64_t{0})}};
}

}  // namespace grus::vm
