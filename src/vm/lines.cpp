#include "vm/lines.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "channel/address.hpp"
#include "channel/stream.hpp"

namespace grus::vm {
namespace {

constexpr std::size_t kLongest = std::size_t{16} << 20;
constexpr std::chrono::seconds kToTakeALine{10};

// Whether the descriptor is ready in time.
bool is_ready(int descriptor, short events, Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd one{descriptor, events, 0};
  return poll(&one, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000))) > 0;
}

// A port is no socket.
ssize_t write_some(int descriptor, const char* from, std::size_t size) {
  const ssize_t sent = ::send(descriptor, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent < 0 && errno == ENOTSOCK ? ::write(descriptor, from, size) : sent;
}

}  // namespace

void Lines::send(const json& value) {
  const std::string line = value.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
  const auto until = Clock::now() + kToTakeALine;
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t more = write_some(descriptor_.get(), line.data() + sent, line.size() - sent);
    if (more > 0) {
      sent += static_cast<std::size_t>(more);
    } else if (more < 0 && errno == EINTR) {
      continue;
    } else if (!(more < 0 && errno == EAGAIN) || !is_ready(descriptor_.get(), POLLOUT, until)) {
      throw Gone{fmt::format("{}: nobody takes what is sent", name_)};
    }
  }
}

std::optional<json> Lines::receive(Clock::time_point until) {
  for (;;) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      json value = json::parse(received_.substr(0, end), nullptr, /*allow_exceptions=*/false);
      received_.erase(0, end + 1);
      if (value.is_object()) return value;
      continue;  // what is left of somebody else's conversation
    }
    if (!is_ready(descriptor_.get(), POLLIN, until)) return std::nullopt;
    char more[4096];
    const ssize_t count = read(descriptor_.get(), more, sizeof more);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0 || received_.size() > kLongest) {
      received_.clear();
      throw Gone{fmt::format("{}: the connection was closed", name_)};
    }
    received_.append(more, static_cast<std::size_t>(count));
  }
}

Lines connect_lines(const std::string& path) {
  try {
    return {channel::connect_to({channel::Address::Kind::unix_socket, path, {}}), path};
  } catch (const channel::Lost&) {
    throw Gone{fmt::format("{}: no QEMU listens there", path)};
  }
}

}  // namespace grus::vm
