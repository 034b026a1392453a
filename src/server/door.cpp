#include "server/door.hpp"

#include <sys/prctl.h>
#include <sys/socket.h>

#include <csignal>
#include <string>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "channel/handshake.hpp"
#include "channel/pass.hpp"
#include "server/sandbox.hpp"

namespace grus::server {
namespace {

constexpr std::chrono::seconds kPatienceWithClients{10};  // the server has no more, either

// Keys are read each time: what was renewed or revoked counts at once.
DoorAnswer answer_to(std::uint64_t number, channel::Descriptor socket) {
  DoorAnswer answer{.number = number};
  std::string text;
  try {
    auto keys = std::make_shared<channel::Keys>(channel::Keys::Side::server, channel::keys_folder());
    const channel::Guest guest = channel::admit(std::move(socket), std::move(keys), kPatienceWithClients);
    text = guest.name;
    answer.secret = guest.secret;
    answer.is_admitted = 1;
  } catch (const std::exception& error) {
    text = error.what();
  }
  text.copy(answer.text.data(), answer.text.size() - 1);
  return answer;
}

}  // namespace

int run_door(int control, Confined confined) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_DUMPABLE, 0);     // other processes of this user can't look for the keys
  std::signal(SIGINT, SIG_IGN);  // of the terminal that the server was started in
  try {
    if (confined == Confined::yes) enter_sandbox();
  } catch (const std::exception& error) {
    log::error("door", "{}", error.what());
    return 1;
  }
  while (auto client = channel::receive_passed<DoorRequest>(control)) {
    start_thread("grus-guest", [=, number = client->what.number, socket = std::move(client->descriptors[0])]() mutable {
      const DoorAnswer answer = answer_to(number, std::move(socket));
      (void)!send(control, &answer, sizeof answer, MSG_NOSIGNAL);
    }).detach();
  }
  std::_Exit(0);  // not before those threads, which still use what would be destroyed
}

}  // namespace grus::server
