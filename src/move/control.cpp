#include "move/control.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "channel/control.hpp"
#include "command/gate.hpp"
#include "command/hold_back.hpp"
#include "executor/connection.hpp"
#include "move/mover.hpp"
#include "move/under_way.hpp"
#include "objects/immovable.hpp"

namespace grus::move {
namespace {

using json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kBackSoon{200};  // where there was no room; then twice as long each time, up to
constexpr std::chrono::milliseconds kBackLate{5000};

double seconds(Clock::duration time) { return std::chrono::duration<double>{time}.count(); }

json as_json(const Plan& plan) {
  return {{"destination", plan.destination}, {"bytes", plan.bytes}, {"objects", plan.objects}, {"notes", plan.notes}};
}

json as_json(const Report& report) {
  json phases = json::array();
  for (const Phase& phase : report.phases) {
    phases.push_back({{"phase", phase.name},
                      {"start", seconds(phase.start - report.phases.front().start)},
                      {"seconds", seconds(phase.end - phase.start)},
                      {"read", phase.copied.read},
                      {"sent", phase.copied.sent},
                      {"zero", phase.copied.zero},
                      {"never_sent", phase.copied.never_sent},
                      {"sampled", phase.copied.sampled}});
  }
  std::uint64_t direct = 0;
  for (const Phase& phase : report.phases) direct += phase.copied.direct;
  return {{"plan", as_json(report.plan)},
          {"sent_direct", direct},
          {"phases", std::move(phases)},
          {"stop_seconds", seconds(report.stop)},
          {"drain_seconds", seconds(report.drain)},
          {"sent_running", report.copied_running},
          {"sent_stopped", report.copied_stopped},
          {"built_stopped", report.built_stopped},
          {"stays_loaded", report.staying}};
}

memory::Comparison comparison_from(const json& request) {
  const auto kind = memory::kind_named(request.value("fingerprint", "fitting"));
  const auto place = memory::place_named(request.value("sample_at", "head"));
  const auto bytes = request.value("sample", std::size_t{0});
  if (!kind || !place || bytes > 4) throw Refused{"pages can't be compared in the way that was asked for"};
  return {*kind, {bytes, *place}};
}

Order order_from(const json& request) {
  Order order;
  const Whereabouts now = whereabouts();
  order.to = request.value("to", now.to);
  order.file = request.value("file", "");
  order.device = request.value("device", request.contains("to") ? "" : now.device);
  order.unload = request.value("unload", false);
  order.avoid = request.value("avoid", "");
  order.dry_run = request.value("dry_run", false);
  order.overlap = request.value("overlap", order.overlap);
  order.rounds = request.value("rounds", order.rounds);
  if (request.contains("max_stop_ms")) order.max_stop = std::chrono::milliseconds{request["max_stop_ms"].get<int>()};
  order.bytes_per_second = request.value("bytes_per_second", std::uint64_t{0});
  order.paces_stop = request.value("pace_stop", false);
  order.comparison = comparison_from(request);
  return order;
}

std::uint64_t calls() {
  const auto counts = g_gate.calls();
  return std::accumulate(counts.begin(), counts.end() - 1, std::uint64_t{0});  // the last are Grus's own
}

json describe() {
  std::string program;
  std::getline(std::ifstream{"/proc/self/comm"}, program);
  const char* const name = std::getenv("GRUS_NAME");
  json devices = json::array();
  json places = json::array();
  json objects;
  std::uint64_t bytes = 0;
  std::uint64_t image_bytes = 0;
  std::uint64_t round_trips = 0;
  {
    const Gate::Closed closed{g_gate};  // a move changes what is asked for here with the gate closed, too
    const Inventory all = Inventory::take();
    for (Device* const device : all.root_devices()) {
      Executor& executor = executor_of(*device);
      const auto text = executor.device_info(device->id(), CL_DEVICE_NAME);
      devices.push_back(text ? text_from_bytes(*text) : "?");
      if (!executor.has_device()) continue;
      places.push_back(
          {{"number", numbers_of(*device)},
           {"name", executor.platforms()[device->home.index].name + " / " + devices.back().get<std::string>()}});
    }
    objects = {{"context", all.contexts.size()}, {"queue", all.queues.size()},     {"memory", all.memories.size()},
               {"sampler", all.samplers.size()}, {"program", all.programs.size()}, {"kernel", all.kernels.size()}};
    bytes = all.bytes();
    image_bytes = all.image_bytes();
    round_trips = round_trips_so_far();
  }
  const Whereabouts now = whereabouts();
  return {{"pid", getpid()},
          {"name", name ? name : ""},
          {"program", program},
          {"calls", calls()},
          {"round_trips", round_trips},
          {"devices", devices},
          {"places", places},
          {"objects", objects},
          {"memory_bytes", bytes},
          {"image_bytes", image_bytes},
          {"at", now.is_suspended ? "suspended" : now.to},
          {"immovable", immovable_reasons()}};
}

// Whether it is suspended only until the program wants its device again. Guarded by UnderWay.
bool g_aside = false;

class Conversation {
 public:
  explicit Conversation(channel::Descriptor socket) : line_{std::move(socket), std::chrono::seconds{5}} {}

  void run() {
    const auto text = line_.receive();  // which gives up on who says nothing
    if (!text) return;
    const json request = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    json answer;
    try {
      answer = carry_out(request);
      answer["ok"] = true;
    } catch (const std::exception& error) {
      answer = {{"ok", false}, {"error", error.what()}};
      if (dynamic_cast<const NoRoom*>(&error)) answer["no_room"] = true;
    }
    line_.send(answer.dump());
  }

 private:
  json carry_out(const json& request) {
    const std::string command = request.is_object() ? request.value("command", "") : "";
    if (command == "describe") return describe();
    const UnderWay only;
    Order order = order_from(request);
    if (command == "suspend" || command == "checkpoint" || command == "restore" || command == "move" ||
        command == "resume") {
      if (command == "suspend") order.kind = Order::Kind::suspend;
      if (command == "checkpoint") order.kind = Order::Kind::checkpoint;
      if (command == "restore") order.kind = Order::Kind::restore;
      if (command == "resume" && !whereabouts().is_suspended) throw Refused{"it isn't suspended"};
      Report report;
      if (command != "suspend" || !g_aside)
        report = move_session(
            order, [this](const Progress& progress) { tell(progress); }, cancelled_);
      if (!order.dry_run && command != "restore") g_aside = false;
      return as_json(report);
    }
    throw Refused{fmt::format("'{}' is nothing that this version of Grus knows", command)};
  }

  void tell(const Progress& progress) {
    if (line_.is_closed()) cancelled_ = true;  // whoever asked is gone
    line_.send(json{{"phase", progress.phase},
                    {"done", progress.done},
                    {"all", progress.all},
                    {"bytes_per_second", progress.bytes_per_second},
                    {"predicted_stop_seconds", seconds(progress.predicted_stop)}}
                   .dump());
  }

  channel::Line line_;
  std::atomic<bool> cancelled_{false};
};

std::string& g_path = *new std::string;  // outlives the exit handlers
pid_t g_pid = 0;

void listen(const channel::Descriptor& socket) {
  for (;;) {
    channel::Descriptor peer = channel::accept_from(socket);
    if (peer.get() < 0) std::this_thread::sleep_for(std::chrono::milliseconds{10});
    if (peer.get() < 0 || !channel::is_of_this_user(peer)) continue;
    start_thread("grus-control", [socket = std::make_shared<channel::Descriptor>(std::move(peer))] {
      try {
        Conversation{std::move(*socket)}.run();
      } catch (const std::exception& error) {
        log::warn("control", "{}", error.what());
      }
    }).detach();
  }
}

// A server needs the room that this session takes: it goes to host memory until the program wants its device again.
void step_aside() {
  const std::atomic<bool> never{false};
  const auto tell_nobody = [](const Progress&) {};
  const std::uint64_t wanted = HoldBack::instance().wanted();
  try {
    const UnderWay only;
    if (whereabouts().is_suspended) return;
    Order order;
    order.kind = Order::Kind::suspend;
    move_session(order, tell_nobody, never);
    g_aside = true;
  } catch (const std::exception& error) {
    return log::info("control", "the server wants this session to step aside, which it can't: {}", error.what());
  }
  // Nothing is lost while the server is away: all is here, and who waits can be brought to another server.
  for (auto pause = kBackSoon;; pause = std::min(2 * pause, kBackLate)) {
    HoldBack::instance().wait_until_wanted(wanted);
    try {
      const UnderWay only;
      if (!g_aside) return;
      const Whereabouts now = whereabouts();
      Order order;
      order.to = now.to;
      order.device = now.device;
      move_session(order, tell_nobody, never);
      g_aside = false;
      return;
    } catch (const std::exception& error) {
      if (is_exiting()) return;
      if (pause == kBackSoon)
        log::warn("control",
                  "this session made room for others, can't go back yet, and keeps trying: {} (or: grus resume --to "
                  "ADDRESS {})",
                  error.what(), g_pid);
      std::this_thread::sleep_for(pause);
    }
  }
}

}  // namespace

void start_control() {
  try {
    g_pid = getpid();
    g_path = channel::session_socket(g_pid);
    wait_at_exit();
    Connection::on_step_aside = [] { start_thread("grus-aside", step_aside).detach(); };
    auto socket =
        std::make_shared<channel::Descriptor>(channel::listen_at({channel::Address::Kind::unix_socket, g_path, {}}));
    start_thread("grus-control", [socket] { listen(*socket); }).detach();
    std::atexit([] {
      if (getpid() == g_pid) unlink(g_path.c_str());
    });
  } catch (const std::exception& error) {
    log::info("control", "this program can't be moved: {}", error.what());
  }
}

}  // namespace grus::move
