// Handing a connected socket to another process.
#pragma once

#include <sys/socket.h>

#include <cstring>

#include "channel/stream.hpp"

namespace grus::server {

inline bool pass_socket(int control, const channel::Descriptor& socket) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int value = socket.get();
  std::memcpy(CMSG_DATA(header), &value, sizeof value);
  return sendmsg(control, &message, MSG_NOSIGNAL) == 1;
}

// None if the other side is gone.
inline channel::Descriptor receive_socket(int control) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  if (recvmsg(control, &message, MSG_CMSG_CLOEXEC) != 1) return {};
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_type != SCM_RIGHTS) return {};
  int value = -1;
  std::memcpy(&value, CMSG_DATA(header), sizeof value);
  return channel::Descriptor{value};
}

}  // namespace grus::server
