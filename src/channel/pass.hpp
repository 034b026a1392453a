// Handing descriptors to another process, with a few bytes that say what they are.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "channel/descriptor.hpp"

namespace grus::channel {

inline constexpr std::size_t kMostPassed = 8;

// False if the other side is gone, or has left too much lying there.
template <typename What>
requires std::is_trivially_copyable_v<What>
bool pass(int socket, What what, std::span<const int> descriptors) {
  iovec part{&what, sizeof what};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * kMostPassed)]{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = room;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof what);
}

template <typename What>
struct Passed {
  What what;
  std::array<Descriptor, kMostPassed> descriptors;
};

// As recvmsg() has it, with what descriptors came along.
template <std::size_t kCount>
ssize_t receive_descriptors(int socket, std::span<std::byte> room_for_bytes, int flags,
                            std::array<Descriptor, kCount>& descriptors) {
  iovec part{room_for_bytes.data(), room_for_bytes.size()};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * kCount)]{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (received < 0 || !header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return received;
  const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t index = 0; index < count && index < kCount; ++index) {
    int value = -1;
    std::memcpy(&value, CMSG_DATA(header) + index * sizeof value, sizeof value);
    descriptors[index] = Descriptor{value};
  }
  return received;
}

// Nothing if the other side is gone.
template <typename What>
requires std::is_trivially_copyable_v<What> std::optional<Passed<What>> receive_passed(int socket) {
  Passed<What> passed{};
  const auto bytes = std::as_writable_bytes(std::span{&passed.what, 1});
  const ssize_t received = receive_descriptors(socket, bytes, MSG_WAITALL, passed.descriptors);
  if (received != static_cast<ssize_t>(sizeof passed.what)) return std::nullopt;
  return passed;
}

}  // namespace grus::channel
