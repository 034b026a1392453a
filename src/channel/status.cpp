#include "channel/status.hpp"

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "base/log.hpp"
#include "channel/handshake.hpp"

namespace grus::channel {
namespace {

constexpr std::uint64_t kLongestStatus = std::uint64_t{64} << 20;
constexpr timeval kPatience{5, 0};

void receive(const Descriptor& socket, void* to, std::size_t size, const std::string& server) {
  if (recv(socket.get(), to, size, MSG_WAITALL) != static_cast<ssize_t>(size))
    throw Lost{fmt::format("{}: it closed the connection", server)};
}

template <typename... Said>
std::string ask(const Address& address, const Said&... said) {
  const std::string server = address.text();
  const Descriptor socket = connect_to(address);
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  ((void)!::send(socket.get(), &said, sizeof said, MSG_NOSIGNAL), ...);
  std::array<std::byte, sizeof(Welcome)> start;
  std::uint64_t length = 0;
  receive(socket, start.data(), sizeof length, server);
  std::memcpy(&length, start.data(), sizeof length);
  if (static_cast<std::uint32_t>(length) == kMagic) {  // it begins as for any client that it refuses
    receive(socket, start.data() + sizeof length, start.size() - sizeof length, server);
    Welcome refused;
    std::memcpy(&refused, start.data(), sizeof refused);
    throw Lost{fmt::format("{}: {}", server, text_of(refused.refusal))};
  }
  if (length > kLongestStatus) throw Lost{fmt::format("{}: that is no server of Grus", server)};
  std::string document(length, '\0');
  receive(socket, document.data(), document.size(), server);
  return document;
}

}  // namespace

std::string ask_status(const Address& address) { return ask(address, Preamble{.purpose = Preamble::Purpose::status}); }

std::string ask_change(const Address& address, const TenantChange& change) {
  return ask(address, Preamble{.purpose = Preamble::Purpose::change}, change);
}

std::string status_answer(const std::string& document) {
  const std::uint64_t length = document.size();
  std::string answer(sizeof length, '\0');
  std::memcpy(answer.data(), &length, sizeof length);
  return answer + document;
}

}  // namespace grus::channel
