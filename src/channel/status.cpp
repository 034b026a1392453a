#include "channel/status.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/log.hpp"
#include "channel/handshake.hpp"

namespace grus::channel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLongestStatus = std::uint64_t{64} << 20;
constexpr std::chrono::seconds kPatience{5};

void receive(Stream& stream, void* to, std::size_t size) {
  const auto until = Clock::now() + kPatience;
  auto* next = static_cast<std::byte*>(to);
  while (size != 0) {
    const std::size_t received = stream.receive_some(next, size);
    next += received;
    size -= received;
    const auto left = until - Clock::now();
    if (left.count() <= 0) throw Lost{"it says nothing"};
    if (received == 0) stream.wait({.in = true, .limit = left});
  }
}

std::string answer_of(Stream& stream) {
  std::array<std::byte, sizeof(Welcome)> start;
  std::uint64_t length = 0;
  receive(stream, start.data(), sizeof length);
  std::memcpy(&length, start.data(), sizeof length);
  if (static_cast<std::uint32_t>(length) == kMagic) {  // it begins as for any client that it refuses
    receive(stream, start.data() + sizeof length, start.size() - sizeof length);
    Welcome refused;
    std::memcpy(&refused, start.data(), sizeof refused);
    throw Lost{text_of(refused.refusal)};
  }
  if (length > kLongestStatus) throw Lost{"that is no server of Grus"};
  std::string document(length, '\0');
  receive(stream, document.data(), document.size());
  return document;
}

std::string ask(const Address& address, Preamble::Purpose purpose, std::span<const std::byte> more = {}) {
  try {
    const auto stream = open_for_question(connect_to(address), address, keys_for(address), purpose);
    if (iovec part{const_cast<std::byte*>(more.data()), more.size()}; !more.empty()) stream->send({&part, 1});
    return answer_of(*stream);
  } catch (const Lost& lost) {
    throw Lost{fmt::format("{}: {}", address.text(), lost.what())};
  }
}

}  // namespace

std::string ask_status(const Address& address) { return ask(address, Preamble::Purpose::status); }

std::string ask_change(const Address& address, const TenantChange& change) {
  if (keys_for(address)) throw Lost{fmt::format("{}: it is changed on its own host only", address.text())};
  return ask(address, Preamble::Purpose::change, std::as_bytes(std::span{&change, 1}));
}

std::string status_answer(const std::string& document) {
  const std::uint64_t length = document.size();
  std::string answer(sizeof length, '\0');
  std::memcpy(answer.data(), &length, sizeof length);
  return answer + document;
}

}  // namespace grus::channel
