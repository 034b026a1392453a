#include "server/peer.hpp"

#include <sys/socket.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "channel/address.hpp"

namespace grus::server {

std::string Peer::text() const {
  return user ? fmt::format("{} (process {} of user {})", program, process, *user) : address;
}

nlohmann::ordered_json Peer::json() const {
  if (!user && !name.empty()) return {{"address", address}, {"name", name}};
  if (!user) return {{"address", address}};
  return {{"user", *user}, {"pid", process}, {"program", program}};
}

Peer peer_of(const channel::Descriptor& socket) {
  Peer peer;
  if (channel::is_unix(socket)) {
    ucred who{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};  // nobody
    socklen_t size = sizeof who;
    getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size);
    peer.user = who.uid;
    peer.process = who.pid;
    std::getline(std::ifstream{fmt::format("/proc/{}/comm", who.pid)}, peer.program);
    std::erase_if(peer.program, [](char c) { return static_cast<unsigned char>(c) < ' '; });  // it chose that name
    return peer;
  }
  peer.address = channel::other_side_of(socket);
  return peer;
}

}  // namespace grus::server
