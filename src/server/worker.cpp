#include "server/worker.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/log.hpp"
#include "base/reserved_array.hpp"
#include "base/thread.hpp"
#include "channel/pass.hpp"
#include "executor/local.hpp"
#include "server/handover.hpp"
#include "server/session.hpp"

namespace grus::server {
namespace {

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

// Address space; pages are only taken when they are used.
std::size_t arena_size() {
  return 2 * static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::shared_ptr<const channel::Keys> keys_for(channel::Security security) {
  if (security == channel::Security::plain) return nullptr;
  try {
    return std::make_shared<channel::Keys>(channel::Keys::Side::server, channel::keys_folder());
  } catch (const channel::Lost& lost) {  // they were good when the server was started
    log::error("serve", "a client can't be let in: {}", lost.what());
    throw;
  }
}

}  // namespace

int run_worker(int control) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would look after it
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  std::signal(SIGINT, SIG_IGN);  // of the terminal that the server was started in
  std::signal(SIGPIPE, SIG_IGN);
  const int output = capture_output();
  // Never destroyed: the process ends instead, which gives everything back at once.
  auto* const executor = new LocalExecutor;
  for (std::uint32_t platform = 0; platform < executor->platforms().size(); ++platform) {
    const auto count = executor->device_count(platform);
    for (cl_uint device = 0; count && device < *count; ++device) {
      const ObjectId id{1, kMaxSlots - 1};  // a name for the time being
      executor->name_device(platform, device, id);
      (void)executor->works_in_place(id);
    }
  }
  auto client = channel::receive_passed<Handover>(control);
  if (!client) return 0;  // the server is gone
  const Handover& what = client->what;
  channel::Resumptions* resumptions = nullptr;
  Session* session = nullptr;
  try {
    resumptions = new channel::Resumptions{std::chrono::seconds{what.grace}, keys_for(what.preamble.security)};
    auto opened = channel::welcome_client(std::move(client->descriptors[0]), what.preamble, arena_size(), what.session,
                                          *resumptions);
    session = new Session{std::move(opened), *executor, output};
  } catch (const channel::Lost& lost) {
    log::info("worker", "{}: {}", getpid(), lost.what());
    return 0;
  }
  start_thread("grus-output", [=] {
    pollfd ready{output, POLLIN, 0};
    while (poll(&ready, 1, -1) > 0) session->send_output();
  }).detach();
  start_thread("grus-control", [=] {
    // Whose offer is taken waits for others if that goes wrong.
    while (auto again = channel::receive_passed<Handover>(control))
      start_thread("grus-resume", [=, socket = std::move(again->descriptors[0])]() mutable {
        resumptions->offer(std::move(socket));
      }).detach();
  }).detach();
  const std::string why = session->run();
  log::info("worker", "{}: {}", getpid(), why);
  std::_Exit(0);
}

}  // namespace grus::server
