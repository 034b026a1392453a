#include "vm/card.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/log.hpp"
#include "vm/command.hpp"

namespace grus::vm {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kBetweenLooks = 200ms;  // where the system tells nothing: a driver that takes its time
constexpr std::size_t kMostSaid = 4000;

// The kernel's own messages about devices.
class DeviceEvents {
 public:
  DeviceEvents() : socket_{::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT)} {
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = 1;
    (void)bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  // Until something happened, or for a while.
  void wait() {
    pollfd one{socket_.get(), POLLIN, 0};
    if (poll(&one, 1, static_cast<int>(std::chrono::milliseconds{kBetweenLooks}.count())) <= 0) return;
    std::array<char, 8192> message;
    while (recv(socket_.get(), message.data(), message.size(), 0) > 0) continue;
  }

 private:
  channel::Descriptor socket_;
};

void wait_until(const std::function<bool()>& is_so, Clock::time_point until, const std::function<std::string()>& why) {
  DeviceEvents events;  // before the first look, so that nothing is missed
  while (!is_so()) {
    if (Clock::now() > until) throw Failed{why()};
    events.wait();
  }
}

std::string line_of(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream{file}, line);
  return line;
}

// "0x1af4" and "0x1044" are 1af4:1044.
std::string name_of_device(const fs::path& folder) {
  const std::string vendor = line_of(folder / "vendor");
  const std::string device = line_of(folder / "device");
  return vendor.size() > 2 && device.size() > 2 ? vendor.substr(2) + ":" + device.substr(2) : "";
}

bool is_device_file(const AgentSettings& settings, const fs::path& path) {
  return std::any_of(settings.device_files.begin(), settings.device_files.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0;
  });
}

bool uses_card(const AgentSettings& settings, const fs::path& process) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator{process / "fd", error}) {
    if (is_device_file(settings, fs::read_symlink(entry.path(), error))) return true;
  }
  return false;
}

Ran run_in_shell(const std::string& command) {
  Ran ran = run({"/bin/sh", "-c", command});
  if (ran.said.size() > kMostSaid) ran.said.resize(kMostSaid);
  return ran;
}

}  // namespace

bool has_card(const AgentSettings& settings) {
  std::vector<std::string> there;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator{"/sys/bus/pci/devices", error})
    there.push_back(name_of_device(entry.path()));
  return std::all_of(settings.devices.begin(), settings.devices.end(), [&](const std::string& device) {
    return std::find(there.begin(), there.end(), device) != there.end();
  });
}

std::vector<std::string> users_of_card(const AgentSettings& settings) {
  std::vector<std::string> users;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator{"/proc", error}) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") == std::string::npos && uses_card(settings, entry.path()))
      users.push_back(fmt::format("{}[{}]", line_of(entry.path() / "comm"), pid));
  }
  return users;
}

void wait_for_card(const AgentSettings& settings, Clock::time_point until) {
  wait_until([&] { return has_card(settings); }, until,
             [&] { return fmt::format("the card ({}) didn't come", fmt::join(settings.devices, ", ")); });
}

bool is_usable(const AgentSettings& settings) {
  return !settings.probe.empty() && run_in_shell(settings.probe).status == 0;
}

void wait_for_probe(const AgentSettings& settings, Clock::time_point until) {
  if (settings.probe.empty()) return;
  Ran last;
  const auto works = [&] { return (last = run_in_shell(settings.probe)).status == 0; };
  wait_until(works, until,
             [&] { return fmt::format("the card can't be used: `{}` fails: {}", settings.probe, last.said); });
}

void run_command(const std::string& command) {
  const Ran ran = run_in_shell(command);
  if (ran.status != 0)
    throw Failed{fmt::format(
        "`{}` failed with {}: {}", command,
        WIFEXITED(ran.status) ? fmt::format("exit status {}", WEXITSTATUS(ran.status)) : "a signal", ran.said)};
}

}  // namespace grus::vm
