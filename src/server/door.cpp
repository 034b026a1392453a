#include "server/door.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
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

void tell(channel::Descriptor socket, const channel::Secret& secret, const channel::Descriptor& document) {
  try {
    struct stat about {};
    if (fstat(document.get(), &about) != 0) throw channel::Lost{std::strerror(errno)};
    std::string answer(static_cast<std::size_t>(about.st_size), '\0');
    if (pread(document.get(), answer.data(), answer.size(), 0) != about.st_size) throw channel::Lost{"it is cut off"};
    channel::answer_secretly(std::move(socket), secret, answer, kPatienceWithClients);
  } catch (const std::exception& error) {
    log::warn("door", "somebody wasn't answered: {}", error.what());
  }
}

}  // namespace

bool tell_by_door(int control, const channel::Descriptor& client, const channel::Secret& secret,
                  std::string_view answer) {
  const channel::Descriptor document{memfd_create("grus", MFD_CLOEXEC)};
  const bool is_written = write(document.get(), answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
  const int both[2] = {client.get(), document.get()};
  return is_written && channel::pass(control, DoorRequest{.secret = secret}, both);
}

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
    start_thread("grus-guest", [control, passed = std::move(*client)]() mutable {
      auto& [request, descriptors] = passed;
      if (descriptors[1].get() >= 0) return tell(std::move(descriptors[0]), request.secret, descriptors[1]);
      const DoorAnswer answer = answer_to(request.number, std::move(descriptors[0]));
      (void)!send(control, &answer, sizeof answer, MSG_NOSIGNAL);
    }).detach();
  }
  std::_Exit(0);  // not before those threads, which still use what would be destroyed
}

}  // namespace grus::server
