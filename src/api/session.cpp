#include "api/session.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>

#include "api/call.hpp"
#include "api/dispatch.hpp"
#include "base/log.hpp"
#include "command/callbacks.hpp"
#include "command/hold_back.hpp"
#include "objects/immovable.hpp"

namespace grus::api {
namespace {

std::atomic<bool> g_started{false};
std::atomic<bool> g_lost_by_fork{false};
std::array<std::uint64_t, kMostCalls> g_parents_calls{};  // in a forked child: made before the fork

// What the program did, as one line of JSON, for `grus run --report` and --objects.
void write_report(const char* path) {
  std::string calls;
  const auto counts = g_gate.calls();
  for (std::size_t call = 0; call < static_cast<std::size_t>(Call::kCount); ++call) {
    const std::uint64_t count = counts[call] - g_parents_calls[call];
    if (count == 0) continue;
    calls += fmt::format("{}\"{}\":{}", calls.empty() ? "" : ",", kCallNames[call], count);
  }
  if (calls.empty()) return;
  std::string objects;
  const auto add = [&](const char* name, auto& of) {
    const bool own = !g_lost_by_fork;  // else they are the parent's: without drivers nothing can be created
    objects += fmt::format("{}\"{}\":{{\"created\":{},\"live\":{}}}", objects.empty() ? "" : ",", name,
                           own ? of.created_count() : 0, own ? of.live_count() : 0);
  };
  add("context", slab<Context>());
  add("queue", slab<Queue>());
  add("memory", slab<Memory>());
  add("sampler", slab<Sampler>());
  add("program", slab<Program>());
  add("kernel", slab<Kernel>());
  add("event", slab<Event>());
  std::string reasons;
  for (const auto& reason : immovable_reasons()) reasons += fmt::format("{}\"{}\"", reasons.empty() ? "" : ",", reason);
  std::string program;
  std::getline(std::ifstream{"/proc/self/comm"}, program);
  std::erase_if(program, [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' '; });
  const std::string line = fmt::format(
      "{{\"pid\":{},\"program\":\"{}\",\"calls\":{{{}}},\"objects\":{{{}}},\"held_back\":{},\"round_trips\":{},"
      "\"immovable\":[{}]}}\n",
      getpid(), program, calls, objects, HoldBack::instance().held_so_far(), round_trips_so_far(), reasons);
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0 || write(file, line.data(), line.size()) < 0) log::error("report", "{}: can't be written", path);
  if (file >= 0) close(file);
}

std::string& report_path() {
  static std::string* const path = new std::string;  // outlives the exit handlers
  return *path;
}

void after_fork_in_child() {
  // Inherited handles are invalid from here on, and whatever other threads were doing is not done any more.
  g_session_number.fetch_add(1);
  g_gate.forget_other_threads();
  HoldBack::after_fork();
  callbacks::forget_all();
  g_parents_calls = g_gate.calls();
  if (g_started) g_lost_by_fork = true;
}

}  // namespace

void start_session() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_dispatch = &dispatch_table();  // every object that the program gets carries it
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
    if (const char* path = std::getenv("GRUS_REPORT"); path && *path) {
      report_path() = path;
      std::atexit([] { write_report(report_path().c_str()); });
    }
    starting_executors();
    g_started = true;
  });
}

bool drivers_are_lost_by_fork() {
  if (!g_lost_by_fork) return false;
  static std::once_flag told;
  std::call_once(told, [] {
    log::error("fork",
               "this process was forked from one that had used OpenCL; drivers don't survive that. "
               "Use OpenCL only after the fork, or start the child with exec (Python: multiprocessing's \"spawn\")");
  });
  return true;
}

}  // namespace grus::api
