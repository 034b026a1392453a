#include "server/worker.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "channel/pass.hpp"
#include "executor/local.hpp"
#include "server/counters.hpp"
#include "server/handover.hpp"
#include "server/lease.hpp"
#include "server/sandbox.hpp"
#include "server/session.hpp"
#include "server/worker_folders.hpp"

namespace grus::server {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kTimeToHear{100};  // for a client that is told why its session ends

constexpr std::chrono::milliseconds kTimeToNotice{50};  // that a client is gone, for who reads from it

// The first reason is the one that counts.
void note_end(Counters& counters, const std::string& why) {
  static std::atomic_flag is_noted;
  if (!is_noted.test_and_set()) Counters::append(counters.why, why);
}

[[noreturn]] void end_once_heard() {
  std::this_thread::sleep_for(kTimeToHear);
  std::_Exit(0);
}

// Where drivers cache what they compiled, by these variables.
constexpr std::pair<const char*, const char*> kCaches[] = {{"POCL_CACHE_DIR", "pocl"},        {"CUDA_CACHE_PATH", "nv"},
                                                           {"MESA_SHADER_CACHE_DIR", "mesa"}, {"NEO_CACHE_DIR", "neo"},
                                                           {"AMD_COMGR_CACHE_DIR", "comgr"},  {"XDG_CACHE_HOME", ""}};

// Makes them use this folder. Returns those that they would use.
std::vector<fs::path> use_own_caches(const fs::path& own) {
  const fs::path caches = cache_folder();
  std::vector<fs::path> others = {caches, own.parent_path()};
  if (const char* const home = std::getenv("HOME")) others.push_back(fs::path{home} / ".nv");
  std::error_code error;
  for (const auto& [variable, name] : kCaches) {
    if (const char* const other = std::getenv(variable)) others.emplace_back(other);
    fs::create_directories(own / name, error);
    setenv(variable, (own / name).c_str(), /*overwrite=*/1);
  }
  for (const char* const name : {"grus", "tmp"}) fs::create_directory(own / name, error);
  setenv("TMPDIR", (own / "tmp").c_str(), /*overwrite=*/1);
  fs::copy_file(caches / "grus" / "libraries", own / "grus" / "libraries", error);  // which drivers were tried
  return others;
}

// What kernels print goes to the client.
int capture_output() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  dup2(ends[1], STDOUT_FILENO);
  close(ends[1]);
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return ends[0];
}

// Drivers must find the folder of their caches when what they put there is to be read.
void confine(std::vector<fs::path> hidden, const fs::path& own) {
  const fs::path caches = cache_folder();
  std::error_code error;
  if (!caches.empty()) fs::create_directories(caches, error);
  hidden.push_back(channel::keys_folder());
  enter_sandbox();
  hide(hidden, own);
}

// Address space; pages are only taken when they are used.
std::size_t arena_size(std::uint64_t quota) {
  const std::size_t memory =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return 2 * (quota != 0 ? std::min(memory, quota) : memory);
}

std::shared_ptr<const channel::Keys> keys_of(const Handover& what) {
  if (what.preamble.security == channel::Security::plain) return nullptr;
  return std::make_shared<channel::Keys>(channel::Keys::Side::server, what.secret);
}

// Commands wait for their turn at the devices that other sessions may use, too.
void share_devices(LocalExecutor& executor, const Offer& offer, LeasePage& page, int bell) {
  std::size_t number = 0;
  for (const auto& [platform, devices] : offer) {
    for (const cl_uint device : devices) {
      if (number == LeasePage::kDevices)
        return log::warn("worker", "the devices beyond {} aren't shared in turns", number);
      const auto tell_server = [bell] {
        const std::uint64_t one = 1;
        (void)!write(bell, &one, sizeof one);
      };
      executor.share_device(platform, device, *new Lease{page.devices[number++], tell_server});
    }
  }
}

// Of devices that have memory of their own: how much sessions may use of it, for the driver needs some, too; and a
// context.
void get_ready(LocalExecutor& executor, const Offer& offer, int control, bool with_contexts) {
  std::uint32_t number = 0;
  for (const auto& [platform, devices] : offer) {
    for (const cl_uint device : devices) {
      const ObjectId id{1, kMaxSlots - 1};  // a name for the time being
      executor.name_device(platform, device, id);
      const auto size = executor.device_info(id, CL_DEVICE_GLOBAL_MEM_SIZE);
      Request told{.what = Request::What::capacity, .device = number++};
      if (size && size->size() == sizeof(cl_ulong)) told.bytes = from_bytes<cl_ulong>(*size) / 16 * 15;
      if (executor.works_in_place(id)) continue;
      if (told.device < LeasePage::kDevices) channel::pass(control, told, {});
      if (with_contexts) executor.make_context_ready(platform, device);
    }
  }
}

}  // namespace

int run_worker(int control, const WorkerOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would look after it
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  std::signal(SIGINT, SIG_IGN);  // of the terminal that the server was started in
  std::signal(SIGPIPE, SIG_IGN);
  try {
    auto hidden = options.caches.empty() ? std::vector<fs::path>{} : use_own_caches(options.caches);
    if (options.sandbox) confine(std::move(hidden), options.caches);
  } catch (const std::exception& error) {
    log::error("worker", "{}", error.what());
    return 1;
  }
  const int output = capture_output();
  // Never destroyed: the process ends instead, which gives everything back at once.
  auto* const executor = new LocalExecutor;
  const Offer offer = make_offer(*executor, options.devices);
  get_ready(*executor, offer, control, options.ready_contexts);
  auto client = channel::receive_passed<Handover>(control);
  if (!client) return 0;  // the server is gone
  const Handover& what = client->what;
  auto* const counters = new SharedCounters{SharedCounters::map(std::move(client->descriptors[1]))};
  if (!*counters) return 1;
  const bool has_slice = what.slice.size != 0;
  const int bell = client->descriptors[has_slice ? 4 : 2].release();
  const bool shares = bell >= 0;
  if (shares) share_devices(*executor, offer, counters->leases(), bell);
  channel::Resumptions* resumptions = nullptr;
  Session* session = nullptr;
  try {
    resumptions = new channel::Resumptions{std::chrono::seconds{what.grace}};
    auto opened = has_slice ? channel::welcome_guest(std::move(client->descriptors[0]), what.preamble,
                                                     client->descriptors[2], what.slice)
                            : channel::welcome_client(std::move(client->descriptors[0]), keys_of(what), what.preamble,
                                                      arena_size(what.quota), what.session, *resumptions);
    client->descriptors[2].reset();  // of the area it has what it needs
    if (options.sandbox) limit_files();
    const auto connect = [control](const std::string& address, channel::Security security, std::uint64_t to) {
      Request wanted{.what = Request::What::connection, .security = security, .session = to};
      if (address.size() >= sizeof wanted.address) return false;
      address.copy(wanted.address, address.size());
      return channel::pass(control, wanted, {});
    };
    const auto end = [counters](const std::string& why) {
      note_end(**counters, why);
      end_once_heard();
    };
    const auto ask = [control](const Request& request) { return channel::pass(control, request, {}); };
    Session::Terms terms{.offer = offer,
                         .memory = what.quota,
                         .part = what.part,
                         .moves_out = what.moves_out != 0,
                         .objects = options.objects,
                         .build_limit = std::chrono::seconds{options.build_limit},
                         .output = output,
                         .output_limit = options.output_limit,
                         .number = what.session,
                         .connect = connect,
                         .ask = ask,
                         .end = end};
    if (shares) {
      terms.turn_at = [executor](ObjectId queue) { return executor->turn_at(queue); };
      terms.goes_in_pieces = [executor](const command::Launch& launch, ObjectId queue) {
        return executor->goes_in_pieces(launch, queue);
      };
    }
    session = new Session{std::move(opened), *executor, std::move(terms), **counters};
    executor->wait_for_room = [session](Turn& turn) { return session->wait_for_room(turn); };
  } catch (const channel::Lost& lost) {
    note_end(**counters, lost.what());
    return 0;
  }
  start_thread("grus-output", [=] {
    pollfd ready{output, POLLIN, 0};
    while (poll(&ready, 1, -1) > 0) session->send_output();
  }).detach();
  start_thread("grus-control", [=] {
    while (auto again = channel::receive_passed<Handover>(control)) {
      channel::Descriptor socket = std::move(again->descriptors[0]);
      const channel::Preamble& preamble = again->what.preamble;
      if (const char* const why = again->what.why_it_ends; *why) {
        session->tell_end(std::string{why, strnlen(why, sizeof again->what.why_it_ends)});
        end_once_heard();
      } else if (again->what.memory.what == MemoryWord::What::move_out) {
        start_thread("grus-move-out", [=, word = again->what.memory] { session->move_out(word); }).detach();
      } else if (again->what.memory.what == MemoryWord::What::step_aside) {
        session->step_aside();
      } else if (again->what.memory.what != MemoryWord::What::nothing) {
        session->hear(again->what.memory);
      } else if (again->what.is_connection) {
        session->is_connected(std::move(socket));
      } else if (socket.get() < 0) {
        resumptions->expect();
      } else if (preamble.purpose == channel::Preamble::Purpose::pages) {
        start_thread("grus-pages", [=, socket = std::move(socket), security = preamble.security]() mutable {
          session->offer_pages(std::move(socket), security);
        }).detach();
      } else {
        // Whose offer is taken waits for others if that goes wrong.
        start_thread("grus-resume", [=, socket = std::move(socket), keys = keys_of(again->what)]() mutable {
          resumptions->offer(std::move(socket), std::move(keys));
        }).detach();
      }
    }
  }).detach();
  // Who reads from the client may wait for the device meanwhile, and so for ever.
  start_thread("grus-watch", [=] {
    const std::string why = session->wait_for_end();
    std::this_thread::sleep_for(kTimeToNotice);
    note_end(**counters, why);
    std::_Exit(0);
  }).detach();
  note_end(**counters, session->run());
  std::_Exit(0);
}

}  // namespace grus::server
