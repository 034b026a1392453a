#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/problem.hpp"
#include "cli/table.hpp"
#include "vm/hypervisor.hpp"
#include "vm/libvirt.hpp"
#include "vm/migration.hpp"

namespace grus::cli {
namespace {

using vm::json;
using Kind = vm::MigrationOrder::Kind;

constexpr const char* kExamples = R"(Examples:
  grus vm list
  grus vm migrate web --to web-at-b                  its programs go on through the proxy while it travels
  grus vm migrate web --to web-at-b --stop-and-copy  they wait, with what they had in the guest's memory
  grus vm detach-gpu web                             its programs go to the proxy, and the card to somebody else
  grus vm attach-gpu web                             and back

Virtual machines are in a file, ~/.config/grus/vms.toml or /etc/grus/vms.toml:
  [web]
  qmp = "/run/vm/web.qmp"            QEMU's -qmp unix:/run/vm/web.qmp,server=on,wait=off
  agent = "/run/vm/web.agent"        the port that `grus agent` has in the guest
  proxy = "tcp:10.0.0.1:7070"        a `grus serve` of this host, as the guest reaches it
  gpu = { driver = "vfio-pci", id = "gpu", bus = "pcie.1", host = "0000:65:00.0" }
  [web-at-b]
  qmp = "/run/vm/web-at-b.qmp"       of the QEMU that waits; `ssh -L` brings a socket of another host here
  agent = "/run/vm/web-at-b.agent"
  incoming = "tcp:host-b:4444"       as QEMU's -incoming has it
  gpu = { driver = "vfio-pci", id = "gpu", bus = "pcie.1", host = "0000:17:00.0" }
A domain of libvirt's has libvirt = "qemu:///system", or another URI, instead of qmp; docs/vm.md has the rest.

Exit status: 0 done, 1 failed: the message says where the guest runs and on what; 2 wrong usage.)";

struct Options {
  std::string file;
  std::string name;
  std::string to;
  std::string proxy;
  std::string trace;
  bool stop_and_copy = false;
  bool live_only = false;
  bool json = false;
  int unplug = 30;
};

std::atomic<bool> g_cancelled{false};  // by Ctrl-C

// While a machine is on its way an end of this process would leave it half there.
void cancel_by_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_cancelled = true; };
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

std::map<std::string, vm::Machine> machines_of(const Options& options) {
  try {
    return vm::read_machines(options.file.empty() ? vm::default_machines_file() : options.file);
  } catch (const vm::Failed& failed) {
    throw Problem{failed.what(), kUsage};
  }
}

template <typename Fits>
const vm::Machine& machine_of(const std::map<std::string, vm::Machine>& machines, const std::string& name, Fits fits) {
  for (const auto& [its_name, machine] : machines) {
    if (its_name == name || fits(machine)) return machine;
  }
  throw Problem{fmt::format("{}: the file has no virtual machine of that name; `grus vm list` lists them", name),
                kUsage};
}

const vm::Machine& machine_named(const std::map<std::string, vm::Machine>& machines, const std::string& name) {
  return machine_of(machines, name, [](const vm::Machine&) { return false; });
}

// By its name, by where it waits for one to come, or by libvirt's URI.
const vm::Machine& destination_of(const std::map<std::string, vm::Machine>& machines, const vm::Machine& source,
                                  const std::string& name) {
  return machine_of(machines, name, [&](const vm::Machine& one) {
    return one.incoming == name || (one.libvirt == name && one.domain == source.domain);
  });
}

vm::MigrationOrder order_of(const Options& options, const vm::Machine& machine) {
  vm::MigrationOrder order;
  order.kind = options.stop_and_copy ? Kind::stop_and_copy : Kind::live;
  order.proxy = options.proxy.empty() ? machine.proxy : options.proxy;
  order.unplug = std::chrono::seconds{options.unplug};
  if (order.kind == Kind::live && order.proxy.empty()) {
    throw Problem{
        fmt::format("{} has no proxy to which its programs could go; name one with --proxy or in the file, or "
                    "use --stop-and-copy",
                    machine.name),
        kUsage};
  }
  if (!options.json && isatty(STDERR_FILENO))
    order.on_step = [](const std::string& step) { fmt::print(stderr, "\r\033[K{}…", step); };
  return order;
}

void print_steps(const json& steps) {
  Table table{{{"side"}, {"step"}, {"from", Align::right}, {"for", Align::right}}};
  for (const json& step : steps) {
    table.add({step.value("side", ""), step.value("step", ""), fmt::format("{:.3f} s", step.value("start", 0.0)),
               fmt::format("{:.3f} s", step.value("seconds", 0.0))});
  }
  fmt::print("{}", table.text(Style{stdout}, 2));
}

int report(const Options& options, const json& outcome, const std::string& done) {
  if (!options.json && isatty(STDERR_FILENO)) fmt::print(stderr, "\r\033[K");
  if (!options.trace.empty()) {
    std::ofstream file{options.trace};
    file << vm::trace_of(outcome["steps"]).dump(1) << '\n';
    if (!file.flush()) fmt::print(stderr, "grus: {}: can't be written\n", options.trace);
  }
  if (options.json) {
    fmt::print("{}\n", outcome.dump(2));
  } else {
    print_steps(outcome["steps"]);
    if (const json migration = outcome.value("migration", json::object()); !migration.empty()) {
      fmt::print("QEMU stopped the guest for {} ms and sent {}\n", migration.value("downtime_ms", 0),
                 size_text(migration.value("ram_bytes", std::uint64_t{0})));
    }
  }
  for (const json& session : outcome.value("sessions", json::array())) {
    for (const json& why : session.value("stays_loaded", json::array()))
      fmt::print(stderr, "grus: {}[{}]: {}\n", session.value("program", ""), session.value("pid", 0),
                 why.get<std::string>());
  }
  for (const json& program : outcome.value("ended", json::array()))
    fmt::print(stderr, "grus: {} ended meanwhile, by itself or because the proxy was lost\n",
               program.get<std::string>());
  if (outcome.contains("fell_back"))
    fmt::print(stderr, "grus: programs were suspended, since the proxy has no room for them: {}\n",
               outcome["fell_back"].get<std::string>());
  if (!outcome.value("ok", false)) throw Problem{outcome.value("error", "")};
  if (!options.json) fmt::print("{}\n", done);
  return kDone;
}

int migrate(const Options& options) {
  const auto machines = machines_of(options);
  const vm::Machine& source = machine_named(machines, options.name);
  const vm::Machine& destination = destination_of(machines, source, options.to);
  if (&source == &destination) throw Problem{"a virtual machine can't be moved to itself", kUsage};
  vm::MigrationOrder order = order_of(options, source);
  order.falls_back = !options.live_only;
  cancel_by_signals();
  return report(options, vm::migrate(source, destination, order, g_cancelled),
                fmt::format("{} runs at {}", source.name, destination.name));
}

json about(const vm::Machine& machine) {
  json row = {{"name", machine.name}};
  std::unique_ptr<vm::Hypervisor> hypervisor;
  try {
    hypervisor = vm::hypervisor_of(machine);
    row["status"] = hypervisor->status();
    if (row["status"] != "running") return row;
    row["gpu"] = hypervisor->has_gpu();
  } catch (const std::exception& error) {
    row["status"] = "not there";
    row["error"] = error.what();
    return row;
  }
  try {
    vm::Agent agent{hypervisor->agent_socket()};
    row["programs"] = agent.wait_until_there(vm::Clock::now() + std::chrono::seconds{2})["programs"];
  } catch (const std::exception& error) {
    row["error"] = error.what();
  }
  return row;
}

std::string programs_text(const json& row) {
  if (!row.contains("programs")) return row.contains("error") && row["status"] == "running" ? "no agent" : "";
  std::string text;
  for (const json& one : row["programs"]) {
    text += fmt::format("{}{}[{}] at {}", text.empty() ? "" : ", ", one.value("program", ""), one.value("pid", 0),
                        one.value("at", ""));
  }
  return text.empty() ? "none" : text;
}

int list(const Options& options) {
  json rows = json::array();
  for (const auto& [name, machine] : machines_of(options)) rows.push_back(about(machine));
  if (options.json) {
    fmt::print("{}\n", rows.dump(2));
    return kDone;
  }
  Table table{{{"name"}, {"QEMU"}, {"card"}, {"programs"}}};
  for (const json& row : rows) {
    table.add({row.value("name", ""), row.value("status", ""),
               row.contains("gpu") ? (row["gpu"].get<bool>() ? "yes" : "no") : "", programs_text(row)});
  }
  fmt::print("{}", table.text(Style{stdout}, 0));
  return kDone;
}

int change_gpu(const Options& options, json (*change)(const vm::Machine&, const vm::MigrationOrder&),
               const char* done) {
  const auto machines = machines_of(options);
  const vm::Machine& machine = machine_named(machines, options.name);
  return report(options, change(machine, order_of(options, machine)), fmt::format("{} {}", machine.name, done));
}

int hook(const Options& options) {
  const std::string xml{std::istreambuf_iterator<char>{std::cin}, {}};
  try {
    fmt::print("{}", vm::take_domain(options.name, xml));
  } catch (const vm::Failed& failed) {
    throw Problem{failed.what()};
  }
  return kDone;
}

CLI::App* add(CLI::App& vm, Options& options, const char* name, const char* about) {
  CLI::App* app = vm.add_subcommand(name, about);
  app->add_option("--config", options.file, "The file of virtual machines")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  app->add_flag("--json", options.json, "As JSON, for scripts");
  return app;
}

void add_change_options(CLI::App& app, Options& options) {
  app.add_option("NAME", options.name, "A virtual machine of the file")->required();
  app.add_option("--proxy", options.proxy,
                 "The server for its programs meanwhile, as the guest reaches it; else the file's")
      ->type_name("ADDRESS");
  app.add_flag("--stop-and-copy", options.stop_and_copy, "Suspend programs into the guest's memory instead");
  app.add_option("--unplug", options.unplug, "How long the guest may take to let go of the card")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str()
      ->type_name("SECONDS");
  app.add_option("--trace", options.trace, "Write the timeline there, as chrome://tracing reads it")->type_name("FILE");
}

}  // namespace

Subcommand add_vm(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app =
      grus.add_subcommand("vm", "Move virtual machines that use a GPU, and give them cards or take them away");
  app->footer(kExamples);
  app->require_subcommand(1);
  CLI::App* const listed =
      add(*app, *options, "list", "Virtual machines, whether they have their cards, and what runs there");
  CLI::App* const moved = add(*app, *options, "migrate", "Move one to another QEMU while its programs run");
  add_change_options(*moved, *options);
  moved->add_flag("--live-only", options->live_only,
                  "Fail if the proxy has no room for the programs, instead of suspending them into the guest's memory");
  moved
      ->add_option("--to", options->to,
                   "The machine of the file that waits for it: its name, its incoming, or its libvirt")
      ->required()
      ->type_name("WHERE");
  CLI::App* const detached = add(*app, *options, "detach-gpu", "Take its card away; its programs go to the proxy");
  add_change_options(*detached, *options);
  CLI::App* const attached = add(*app, *options, "attach-gpu", "Give it its card; programs at the proxy return");
  add_change_options(*attached, *options);
  CLI::App* const asked = app->add_subcommand(
      "hook", "For libvirt's hook: whether a domain may come, whose XML is the input; see docs/libvirt-hook");
  asked->add_option("NAME", options->name, "The domain")->required();
  return {app, [options, listed, moved, detached, asked] {
            if (asked->parsed()) return hook(*options);
            if (listed->parsed()) return list(*options);
            if (moved->parsed()) return migrate(*options);
            return detached->parsed() ? change_gpu(*options, vm::detach_gpu, "has no card now")
                                      : change_gpu(*options, vm::attach_gpu, "has its card");
          }};
}

}  // namespace grus::cli
