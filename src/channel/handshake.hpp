// What is said before there are messages: who comes, with which versions, and what for. These two never change, so that
// all versions understand them.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "channel/address.hpp"
#include "channel/area.hpp"
#include "channel/keys.hpp"
#include "channel/lasting.hpp"
#include "channel/shared_memory.hpp"
#include "channel/stream.hpp"

namespace grus::channel {

// Changes with what messages mean. A side also understands the one before, so that servers and clients can be updated
// one after the other.
inline constexpr std::uint16_t kProtocol = 1;
inline constexpr std::uint16_t kOldestProtocol = 1;
static_assert(kOldestProtocol == 1 || kOldestProtocol < kProtocol);
inline constexpr std::uint32_t kMagic = 0x53555247;  // "GRUS"

// What follows a preamble. With TLS, all that does is inside it, but for a welcome that refuses. There are two, one
// after the other: in the first the client shows who it is, in the second it has its session, with a secret from the
// first. So a worker needs none of the server's keys.
enum class Security : std::uint32_t { plain, tls };

// That a side understands.
struct Protocols {
  std::uint16_t newest = kProtocol;
  std::uint16_t oldest = kOldestProtocol;
};

struct Preamble {
  // A bare session shares no memory, and ends with its connection. So does one in an area that a guest and its host
  // share; the host's relay brings it a slice, or else makes it a bare one.
  enum class Purpose : std::uint32_t { session, resume, status, pages, bare_session, change, area_session };
  std::uint32_t magic = kMagic;
  Protocols protocols{};
  Purpose purpose = Purpose::session;
  Security security = Security::plain;
  std::uint64_t session = 0;  // to go on with, or to bring pages to
};
static_assert(sizeof(Preamble) == 24);

// As the host's relay sends it, with two descriptors: the area's file, and what tells by its end that the slice is
// free.
struct AreaPreamble {
  Preamble preamble{};
  Slice slice{};
};
static_assert(sizeof(AreaPreamble) == sizeof(Preamble) + sizeof(Slice));

enum class Refusal : std::uint32_t { none, stranger, full, ending, wants_tls, has_no_tls, has_no_such_session };

struct Welcome {
  std::uint32_t magic = kMagic;
  Protocols protocols{};
  std::uint32_t protocol = 0;    // the one that both use; 0: there is none
  std::uint32_t has_memory = 0;  // shared, whose descriptor comes along with those that wake
  SharedSizes memory{};
  std::uint64_t session = 0;  // by which a client that lost its connection is known; in an area, where its slice begins
  std::array<std::uint64_t, 2> key{};  // in an area, what is at the end of the rings: so it is the same memory
  std::uint32_t grace = 0;             // seconds for which it is waited for
  Refusal refusal = Refusal::none;
};
static_assert(sizeof(Welcome) == 72);
const char* text_of(Refusal refusal);

// What a worker shows that brings pages to the session of another server. With TLS it is what both know.
struct Ticket {
  std::uint64_t session = 0;
  Secret key{};
};

// What ends the first TLS, where clients without a certificate begin with a token; and the answer to a ticket.
struct Admission {
  enum class Answer : std::uint64_t { wrong_token, admitted, revoked };
  Answer answer = Answer::wrong_token;
};

// What follows a preamble that is to go on with a session, and its answer. A client that got the answer says so: who
// didn't wait for it tries again, and what was sent over this connection would come to nobody.
struct Resume {
  std::array<std::uint64_t, 2> key{};
  std::uint64_t received = 0;
};
struct Resumed {
  std::uint64_t is_known = 0;
  std::uint64_t received = 0;
};
struct GoesOn {
  std::uint8_t yes = 1;
};

// The newest protocol that both sides understand; 0 if there is none.
std::uint16_t common_protocol(const Protocols& one, const Protocols& other);
// Which side is to be updated if there is none, as this one sees it.
std::string text_of_difference(const Protocols& theirs, const Protocols& ours, const char* they, const char* we);

// A channel that messages can go through.
struct Opened {
  std::unique_ptr<Stream> stream;
  std::shared_ptr<SharedMemory> memory;  // null over a network
};

// The client's end; with keys it wants TLS. Throws Lost.
Opened open_channel(Descriptor socket, const Address& address, std::shared_ptr<const Keys> keys);

// The same for a question to the server itself: what comes behind the preamble.
std::unique_ptr<Stream> open_for_question(Descriptor socket, const Address& address, std::shared_ptr<const Keys> keys,
                                          Preamble::Purpose purpose);
// The server's end of that where it is TLS, for the answer. They throw Lost.
void answer_secretly(Descriptor socket, const Secret& secret, std::string_view answer,
                     std::chrono::milliseconds patience);

// The server's end of the first TLS: who the client is, and the secret for the second. Throws Lost with why it is not
// let in, once it could read that, too.
struct Guest {
  std::string name;
  Secret secret{};
};
Guest admit(Descriptor socket, std::shared_ptr<const Keys> keys, std::chrono::milliseconds patience);

// The server's end of what follows, with the keys of a guest's secret, or none without TLS. Over a network a session
// goes on with another connection, if one is offered.
class Resumptions {
 public:
  explicit Resumptions(std::chrono::seconds grace) : grace_{grace} {}
  // A socket of somebody who says that the session is theirs. On a thread of its own: it may wait for the next offer.
  void offer(Descriptor socket, std::shared_ptr<const Keys> keys);
  // Somebody says so, and isn't let in yet.
  void expect();

 private:
  friend Opened welcome_client(Descriptor socket, std::shared_ptr<const Keys> keys, const Preamble& preamble,
                               std::size_t arena, std::uint64_t session, Resumptions& resumptions);
  LastingStream::Connected take(std::uint64_t received, const Lost& why);

  const std::chrono::seconds grace_;
  std::array<std::uint64_t, 2> key_{};
  LastingStream* stream_ = nullptr;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::unique_ptr<Stream> offered_;
  std::chrono::steady_clock::time_point expected_until_{};
  std::uint64_t received_ = 0;  // by who offered it
};
Opened welcome_client(Descriptor socket, std::shared_ptr<const Keys> keys, const Preamble& preamble, std::size_t arena,
                      std::uint64_t session, Resumptions& resumptions);
// The same for a session in an area.
Opened welcome_guest(Descriptor socket, const Preamble& preamble, const Descriptor& area, const Slice& slice);

// Between the workers of two servers, which know each other by the ticket alone. A worker has a connection only once
// its server has asked for it there, and a server has answered: it could speak to anybody else as its user. They throw
// Lost.
Ticket new_ticket(std::uint64_t session);
void ask_for_pages(const Descriptor& socket, Security security, std::uint64_t session,
                   std::chrono::milliseconds patience);
std::unique_ptr<Stream> open_for_pages(Descriptor socket, Security security, const Ticket& ticket);
std::unique_ptr<Stream> welcome_pages(Descriptor socket, Security security, const Ticket& ticket);

}  // namespace grus::channel
