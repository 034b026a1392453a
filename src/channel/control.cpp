#include "channel/control.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <filesystem>

namespace grus::channel {
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kLongest = std::size_t{1} << 20;
constexpr const char* kPrefix = "session-";

fs::path folder() { return fs::path{default_address().path}.parent_path(); }

}  // namespace

void Line::send(const std::string& text) {
  const std::string line = text + '\n';
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t more = ::send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (more <= 0) return;
    sent += static_cast<std::size_t>(more);
  }
}

std::optional<std::string> Line::receive() {
  for (;;) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    char more[4096];
    pollfd input{socket_.get(), POLLIN, 0};
    if (limit_ && poll(&input, 1, static_cast<int>(limit_->count())) <= 0) return std::nullopt;
    const ssize_t count = recv(socket_.get(), more, sizeof more, 0);
    if (count <= 0 || received_.size() > kLongest) return std::nullopt;
    received_.append(more, static_cast<std::size_t>(count));
  }
}

bool Line::is_closed() {
  pollfd poll{socket_.get(), POLLRDHUP, 0};
  return ::poll(&poll, 1, 0) > 0 && (poll.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

std::string session_socket(pid_t pid) { return folder() / (kPrefix + std::to_string(pid) + ".sock"); }

std::vector<pid_t> sessions_of_this_user() {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator{folder(), error}) {
    const std::string name = entry.path().stem();
    if (!name.starts_with(kPrefix)) continue;
    pid_t pid = 0;
    const std::string number = name.substr(std::string{kPrefix}.size());
    if (std::from_chars(number.data(), number.data() + number.size(), pid).ec != std::errc{}) continue;
    try {
      (void)connect_to({Address::Kind::unix_socket, entry.path(), {}});
      pids.push_back(pid);
    } catch (const std::exception&) {  // nobody listens; whose it was may be a process of another container, so it
                                       // stays if in doubt
      if (kill(pid, 0) != 0 && errno == ESRCH) fs::remove(entry.path(), error);
    }
  }
  return pids;
}

}  // namespace grus::channel
