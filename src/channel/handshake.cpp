#include "channel/handshake.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/log.hpp"
#include "channel/pass.hpp"
#include "channel/ring.hpp"
#include "channel/tls.hpp"

namespace grus::channel {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBulk = std::size_t{64} << 20;
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 48;
constexpr unsigned kCoresToSpin = 8;  // fewer, and who looks again and again keeps somebody from working
constexpr auto kSpin = 20us;
constexpr auto kAttempt = 1000ms;  // to connect again
constexpr auto kBetweenAttempts = 100ms;
constexpr auto kPatienceIfClosed = 700ms;
constexpr auto kTlsAttempt = 3000ms;  // the same with a few round trips more
constexpr auto kPatienceWithClient = 10s;
constexpr auto kPatienceWithServer = 30s;  // where many come at once, drivers may have to be loaded first
constexpr auto kPatienceWithReader = 1s;   // who is to see why they are refused

std::unique_ptr<Stream> make_ring(RingStream::Side side, std::shared_ptr<SharedMemory> memory,
                                  RingStream::Wakers wakers, Descriptor socket) {
  auto ring = std::make_unique<RingStream>(side, std::move(memory), std::move(wakers), std::move(socket));
  if (std::thread::hardware_concurrency() >= kCoresToSpin) ring->spin_for(kSpin);
  return ring;
}

template <typename What>
bool send_whole(const Descriptor& socket, const What& what) {
  return ::send(socket.get(), &what, sizeof what, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof what);
}

template <typename What>
void send_whole(Stream& stream, const What& what) {
  iovec part{const_cast<What*>(&what), sizeof what};
  stream.send({&part, 1});
}

template <typename What>
What receive_whole(Stream& stream, Clock::time_point until) {
  What what;
  for (std::size_t received = 0; received != sizeof what;) {
    const std::size_t more =
        stream.receive_some(reinterpret_cast<std::byte*>(&what) + received, sizeof what - received);
    received += more;
    if (more != 0) continue;
    const auto left = until - Clock::now();
    if (left.count() <= 0) throw Lost{"it says nothing"};
    stream.wait({.in = true, .limit = left});
  }
  return what;
}

// How long sending and receiving may wait; 0: for ever.
void set_limit(const Descriptor& socket, std::chrono::milliseconds limit) {
  const timeval time{limit.count() / 1000, limit.count() % 1000 * 1000};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

[[noreturn]] void refused(Refusal refusal) { throw Lost{text_of(refusal), Lost::How::refused}; }

void check(const Welcome& welcome) {
  if (welcome.magic != kMagic) throw Lost{"that is no server of Grus"};
  if (welcome.refusal != Refusal::none) refused(welcome.refusal);
  if (welcome.protocol >= kOldestProtocol && welcome.protocol <= kProtocol) return;
  if (common_protocol(welcome.protocols, {}) != 0) refused(welcome.refusal);
  throw Lost{text_of_difference(welcome.protocols, {}, "server", "client"), Lost::How::refused};
}

// A client's end of TLS, unless the server says in plain text that it refuses.
std::unique_ptr<TlsStream> shake_hands(Descriptor socket, const Address& address, std::shared_ptr<const Keys> keys,
                                       Clock::time_point until) {
  const int number = socket.get();
  auto stream = std::make_unique<TlsStream>(std::move(socket), std::move(keys), address.path);
  stream->begin_handshake();
  while (!stream->wait({.in = true, .limit = until - Clock::now()}).in && Clock::now() < until) {
  }
  Welcome plain;
  plain.magic = 0;
  if (recv(number, &plain, sizeof plain, MSG_PEEK | MSG_DONTWAIT) > 0 && plain.magic == kMagic) {
    check(plain);
    refused(plain.refusal);
  }
  stream->finish_handshake(until);
  return stream;
}

void expect_admission(const Admission& admission) {
  using Answer = Admission::Answer;
  if (admission.answer == Answer::admitted) return;
  throw Lost{admission.answer == Answer::revoked ? "this client's certificate was revoked: it needs another one"
                                                 : "its token is another than this client's",
             Lost::How::refused};
}

// Both TLS, one after the other, once the preamble is sent.
std::unique_ptr<Stream> secured(Descriptor socket, const Address& address, const std::shared_ptr<const Keys>& keys,
                                Clock::time_point until) {
  const auto first = shake_hands(std::move(socket), address, keys, until);
  if (keys->token()) send_whole(*first, *keys->token());
  expect_admission(receive_whole<Admission>(*first, until));
  const auto secret = std::make_shared<Keys>(Keys::Side::client, first->secret());
  return shake_hands(first->release(), address, secret, until);
}

std::string name_of_client(TlsStream& stream, const Keys& keys, Clock::time_point until) {
  using Answer = Admission::Answer;
  stream.finish_handshake(until);
  std::string name = stream.other_side();
  const auto refuse = [&](Answer answer, const std::string& why) {
    send_whole(stream, Admission{answer});
    throw Lost{why};
  };
  if (name.empty()) {
    if (receive_whole<Token>(stream, until) != *keys.token()) refuse(Answer::wrong_token, "a wrong token");
    name = "somebody with the token";
  } else if (keys.has_revoked(name)) {
    refuse(Answer::revoked, fmt::format("the certificate of {} was revoked", name));
  }
  return name;
}

// Unread, what they still send would keep the answer from coming.
void let_read(int socket) {
  shutdown(socket, SHUT_WR);
  const auto until = Clock::now() + kPatienceWithReader;
  char rest[4096];
  for (ssize_t size = 1; size != 0 && Clock::now() < until;) {
    wait_for_socket(socket, {.in = true, .limit = until - Clock::now()});
    size = recv(socket, rest, sizeof rest, MSG_DONTWAIT);
    if (size < 0 && errno != EAGAIN && errno != EINTR) break;
  }
}

// The server's end of the second TLS, or of none.
std::unique_ptr<Stream> stream_of(Descriptor socket, std::shared_ptr<const Keys> keys,
                                  std::chrono::milliseconds patience) {
  if (!keys) return std::make_unique<SocketStream>(std::move(socket));
  auto stream = std::make_unique<TlsStream>(std::move(socket), std::move(keys));
  stream->finish_handshake(Clock::now() + patience);
  return stream;
}

std::shared_ptr<const Keys> keys_of(const Ticket& ticket, Security security, Keys::Side side) {
  return security == Security::tls ? std::make_shared<Keys>(side, ticket.key) : nullptr;
}

// A server that can be reached and has no such session has ended it.
LastingStream::Connected reconnect(const Address& address, const std::shared_ptr<const Keys>& keys,
                                   const Welcome& welcome, std::uint64_t received, const Lost& why) {
  const auto until = Clock::now() + std::chrono::seconds{welcome.grace};
  log::warn("server", "{}: {}; connecting again", address.text(), why.what());
  for (;;) {
    try {
      Descriptor socket = connect_to(address, kAttempt);
      set_limit(socket, 0ms);
      send_whole(socket, Preamble{.purpose = Preamble::Purpose::resume,
                                  .security = keys ? Security::tls : Security::plain,
                                  .session = welcome.session});
      const auto attempt_end = Clock::now() + (keys ? kTlsAttempt : kAttempt);
      std::unique_ptr<Stream> stream = keys ? secured(std::move(socket), address, keys, attempt_end)
                                            : std::make_unique<SocketStream>(std::move(socket));
      send_whole(*stream, Resume{welcome.key, received});
      const auto resumed = receive_whole<Resumed>(*stream, attempt_end);
      if (!resumed.is_known) refused(Refusal::has_no_such_session);
      send_whole(*stream, GoesOn{});
      log::warn("server", "{}: connected again", address.text());
      return {std::move(stream), resumed.received};
    } catch (const Lost& lost) {
      if (lost.how == Lost::How::refused) throw;
    }
    if (Clock::now() > until) throw Lost{fmt::format("{}, and can't be reached for {} s", why.what(), welcome.grace)};
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

// Whether the client goes on with this connection. If it doesn't say so in time nothing more is taken from it, and what
// has come by then counts.
bool is_taken(Stream& stream, std::uint64_t received) {
  try {
    send_whole(stream, Resumed{1, received});
    receive_whole<GoesOn>(stream, Clock::now() + kAttempt);
    return true;
  } catch (const Lost&) {
    stream.shut();
  }
  try {
    GoesOn goes_on;
    return stream.receive_some(&goes_on, sizeof goes_on) == sizeof goes_on;
  } catch (const Lost&) {
    return false;
  }
}

// What is at the end of the rings is the same for both sides, if both have the same memory.
std::array<std::uint64_t, 2>& mark_of(const SharedMemory& memory) {
  using Mark = std::array<std::uint64_t, 2>;
  return *reinterpret_cast<Mark*>(memory.rings() + memory.sizes().rings - sizeof(Mark));
}

// The client's end of a session in an area, whose memory it has from its own machine's device.
Opened open_in_area(Descriptor socket, const Bar& bar, const Welcome& welcome) {
  const SharedSizes& sizes = welcome.memory;
  if (sizes.rings != kRingsSize || std::max({sizes.bulk, sizes.arena, welcome.session}) > kMostMemory)
    throw Lost{"it names memory that can't be"};
  if (welcome.session + sizes.all() > bar.size)
    throw Lost{fmt::format("{} has {} MiB, and the host's area is larger: it is another file's device", bar.path,
                           bar.size >> 20U)};
  auto memory = SharedMemory::map_part(bar.file.get(), welcome.session, sizes);
  if (!memory) throw Lost{fmt::format("{} can't be mapped: {}", bar.path, std::strerror(errno))};
  if (mark_of(*memory) != welcome.key)
    throw Lost{
        fmt::format("{} isn't the device of the host's area: QEMU's mem-path must be the file of --area", bar.path)};
  memory->hold(Descriptor{fcntl(socket.get(), F_DUPFD_CLOEXEC, 0)});
  auto ring = std::make_unique<RingStream>(RingStream::Side::client, memory,
                                           RingStream::Wakers::make_own(RingStream::Side::client), std::move(socket));
  ring->spin_for(kSpin);
  return {std::move(ring), memory};
}

Opened open_checked(Descriptor socket, const Address& address, std::shared_ptr<const Keys> keys) {
  using Kind = Address::Kind;
  using Purpose = Preamble::Purpose;
  const bool is_in_area = address.kind == Kind::ivshmem;
  const bool is_bare = address.kind == Kind::virtio_serial || address.kind == Kind::vsock;
  const Bar bar = is_in_area ? open_bar(address.port) : Bar{};
  if (!send_whole(socket, Preamble{.purpose = is_in_area ? Purpose::area_session
                                              : is_bare  ? Purpose::bare_session
                                                         : Purpose::session,
                                   .security = keys ? Security::tls : Security::plain}))
    throw Lost{"it closed the connection"};
  const auto lasting = [&](std::unique_ptr<Stream> stream, const Welcome& welcome) {
    return std::make_unique<LastingStream>(std::move(stream), [=](std::uint64_t received, const Lost& why) {
      return reconnect(address, keys, welcome, received, why);
    });
  };
  if (keys) {
    auto stream = secured(std::move(socket), address, keys, Clock::now() + kPatienceWithServer);
    const auto welcome = receive_whole<Welcome>(*stream, Clock::now() + kPatienceWithServer);
    check(welcome);
    return {lasting(std::move(stream), welcome), nullptr};
  }
  auto passed = receive_passed<Welcome>(socket.get());
  if (!passed) throw Lost{"it closed the connection"};
  const Welcome& welcome = passed->what;
  check(welcome);
  if (is_in_area && welcome.has_memory) return open_in_area(std::move(socket), bar, welcome);
  if (is_in_area)
    log::warn("server",
              "{}: no shared memory: all of the host's area is in use, or its `grus relay` has none (--area); "
              "what is sent goes through the port",
              address.text());
  if (is_bare || is_in_area) return {std::make_unique<SocketStream>(std::move(socket)), nullptr};
  if (!welcome.has_memory) return {lasting(std::make_unique<SocketStream>(std::move(socket)), welcome), nullptr};
  auto& got = passed->descriptors;
  auto memory = SharedMemory::map(std::move(got[0]), welcome.memory);
  if (!memory) throw Lost{"no address space for its shared memory"};
  RingStream::Wakers wakers{std::move(got[1]), std::move(got[2]), std::move(got[3]), std::move(got[4])};
  return {make_ring(RingStream::Side::client, memory, std::move(wakers), std::move(socket)), memory};
}

}  // namespace

std::uint16_t common_protocol(const Protocols& one, const Protocols& other) {
  const std::uint16_t newest = std::min(one.newest, other.newest);
  return newest >= std::max(one.oldest, other.oldest) ? newest : 0;
}

std::string text_of_difference(const Protocols& theirs, const Protocols& ours, const char* they, const char* we) {
  return fmt::format("the {} speaks protocols {} to {}, the {} {} to {}: update the {}", they, theirs.oldest,
                     theirs.newest, we, ours.oldest, ours.newest, theirs.newest < ours.oldest ? they : we);
}

const char* text_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::none:
      return "it closed the connection";
    case Refusal::stranger:
      return "it doesn't admit this user";
    case Refusal::full:
      return "it has as many sessions as it may have";
    case Refusal::ending:
      return "it is about to end";
    case Refusal::wants_tls:
      return "it wants TLS: name the folder of your keys with --keys or GRUS_KEYS";
    case Refusal::has_no_tls:
      return "it uses no TLS, which --keys or GRUS_KEYS asks for: start it with --keys, too";
    case Refusal::has_no_such_session:
      return "it has ended the session";
  }
  return "it refuses, for a reason that a newer version knows";
}

std::unique_ptr<Stream> open_for_question(Descriptor socket, const Address& address, std::shared_ptr<const Keys> keys,
                                          Preamble::Purpose purpose) {
  if (!send_whole(socket, Preamble{.purpose = purpose, .security = keys ? Security::tls : Security::plain}))
    throw Lost{"it closed the connection"};
  if (!keys) return std::make_unique<SocketStream>(std::move(socket));
  return secured(std::move(socket), address, keys, Clock::now() + kPatienceWithServer);
}

void answer_secretly(Descriptor socket, const Secret& secret, std::string_view answer,
                     std::chrono::milliseconds patience) {
  const int number = socket.get();
  const auto stream = stream_of(std::move(socket), std::make_shared<Keys>(Keys::Side::server, secret), patience);
  iovec part{const_cast<char*>(answer.data()), answer.size()};
  stream->send({&part, 1});
  let_read(number);
}

Opened open_channel(Descriptor socket, const Address& address, std::shared_ptr<const Keys> keys) {
  try {
    return open_checked(std::move(socket), address, std::move(keys));
  } catch (const Lost& lost) {
    throw Lost{fmt::format("{}: {}", address.text(), lost.what()), lost.how};
  }
}

Guest admit(Descriptor socket, std::shared_ptr<const Keys> keys, std::chrono::milliseconds patience) {
  const int number = socket.get();
  const auto until = Clock::now() + patience;
  const Keys& known = *keys;
  TlsStream stream{std::move(socket), std::move(keys)};
  try {
    Guest guest{name_of_client(stream, known, until), stream.secret()};
    send_whole(stream, Admission{Admission::Answer::admitted});
    stream.release();
    return guest;
  } catch (const Lost&) {
    let_read(number);
    throw;
  }
}

void Resumptions::offer(Descriptor socket, std::shared_ptr<const Keys> keys) {
  try {
    auto stream = stream_of(std::move(socket), std::move(keys), kTlsAttempt);
    const auto resume = receive_whole<Resume>(*stream, Clock::now() + kAttempt);
    std::uint64_t differs = 0;
    for (std::size_t index = 0; index < key_.size(); ++index) differs |= key_[index] ^ resume.key[index];
    if (differs != 0 || !stream_) {
      send_whole(*stream, Resumed{});
      return;
    }
    stream_->renew([&] {
      const std::lock_guard lock{mutex_};
      offered_ = std::move(stream);
      received_ = resume.received;
      changed_.notify_one();
    });
  } catch (const Lost& lost) {
    log::info("worker", "a client that wanted to go on: {}", lost.what());
  }
}

// A client whose system closed the connection has ended, unless it is back at once.
LastingStream::Connected Resumptions::take(std::uint64_t received, const Lost& why) {
  std::unique_lock lock{mutex_};
  const auto grace_end = Clock::now() + grace_;
  const auto until = why.how == Lost::How::closed ? Clock::now() + kPatienceIfClosed : grace_end;
  for (;;) {
    if (auto stream = std::move(offered_)) {
      if (is_taken(*stream, received)) return {std::move(stream), received_};
      continue;
    }
    const auto end = std::max(until, std::min(expected_until_, grace_end));
    if (Clock::now() >= end) throw Lost{why.what()};
    changed_.wait_until(lock, end);
  }
}

Ticket new_ticket(std::uint64_t session) {
  Ticket ticket{session, {}};
  if (getrandom(ticket.key.data(), sizeof ticket.key, 0) != static_cast<ssize_t>(sizeof ticket.key))
    throw Lost{"no random numbers for a ticket"};
  return ticket;
}

void ask_for_pages(const Descriptor& socket, Security security, std::uint64_t session,
                   std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  if (!send_whole(socket, Preamble{.purpose = Preamble::Purpose::pages, .security = security, .session = session}))
    throw Lost{"it closed the connection"};
  Welcome welcome{};
  for (std::span<std::byte> room = std::as_writable_bytes(std::span{&welcome, 1}); !room.empty();) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd ready{socket.get(), POLLIN, 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) == 0) throw Lost{"it didn't answer in time"};
    const ssize_t received = recv(socket.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (received <= 0) throw Lost{"it closed the connection"};
    room = room.subspan(static_cast<std::size_t>(received));
  }
  if (welcome.magic != kMagic || welcome.protocol == 0 || welcome.refusal != Refusal::none)
    throw Lost{"it doesn't take the session's memory"};
}

std::unique_ptr<Stream> open_for_pages(Descriptor socket, Security security, const Ticket& ticket) {
  auto stream = stream_of(std::move(socket), keys_of(ticket, security, Keys::Side::client), kPatienceWithClient);
  send_whole(*stream, ticket.key);
  if (receive_whole<Admission>(*stream, Clock::now() + kPatienceWithClient).answer != Admission::Answer::admitted)
    throw Lost{"it doesn't take the session's memory"};
  return stream;
}

std::unique_ptr<Stream> welcome_pages(Descriptor socket, Security security, const Ticket& ticket) {
  auto stream = stream_of(std::move(socket), keys_of(ticket, security, Keys::Side::server), kPatienceWithClient);
  const auto key = receive_whole<Secret>(*stream, Clock::now() + kPatienceWithClient);
  unsigned differs = 0;  // takes as long for every key
  for (std::size_t index = 0; index < key.size(); ++index)
    differs |= static_cast<unsigned>(key[index] ^ ticket.key[index]);
  const bool is_right = differs == 0;
  send_whole(*stream, Admission{is_right ? Admission::Answer::admitted : Admission::Answer::wrong_token});
  if (!is_right) throw Lost{"a wrong ticket"};
  return stream;
}

void Resumptions::expect() {
  const std::lock_guard lock{mutex_};
  expected_until_ = Clock::now() + kTlsAttempt;
  changed_.notify_one();
}

Opened welcome_guest(Descriptor socket, const Preamble& preamble, const Descriptor& area, const Slice& slice) {
  const auto memory = SharedMemory::map_part(area.get(), slice.offset, sizes_in(slice));
  if (!memory) throw Lost{"no address space for its slice of the area"};
  Welcome welcome;
  welcome.protocol = common_protocol(preamble.protocols, {});
  welcome.has_memory = 1;
  welcome.memory = memory->sizes();
  welcome.session = slice.offset;
  if (getrandom(welcome.key.data(), sizeof welcome.key, 0) != static_cast<ssize_t>(sizeof welcome.key))
    throw Lost{"no random numbers for the area's mark"};
  std::memset(memory->rings(), 0, 2 * sizeof(RingState));
  mark_of(*memory) = welcome.key;
  if (!send_whole(socket, welcome)) throw Lost{"the connection was closed"};
  auto wakers = RingStream::Wakers::make_own(RingStream::Side::server);
  return {make_ring(RingStream::Side::server, memory, std::move(wakers), std::move(socket)), memory};
}

Opened welcome_client(Descriptor socket, std::shared_ptr<const Keys> keys, const Preamble& preamble, std::size_t arena,
                      std::uint64_t session, Resumptions& resumptions) {
  Welcome welcome;
  welcome.protocol = common_protocol(preamble.protocols, {});
  if (preamble.purpose == Preamble::Purpose::bare_session) {
    auto stream = stream_of(std::move(socket), std::move(keys), kPatienceWithClient);
    send_whole(*stream, welcome);
    return {std::move(stream), nullptr};
  }
  std::shared_ptr<SharedMemory> memory;
  if (is_unix(socket)) {
    memory = SharedMemory::make({kRingsSize, kBulk, arena});
    if (!memory) memory = SharedMemory::make({kRingsSize, kBulk, 0});
  }
  if (!memory) {
    if (getrandom(welcome.key.data(), sizeof welcome.key, 0) != static_cast<ssize_t>(sizeof welcome.key))
      throw Lost{"no random numbers for the session's key"};
    welcome.session = session;
    welcome.grace = static_cast<std::uint32_t>(resumptions.grace_.count());
    resumptions.key_ = welcome.key;
    auto first = stream_of(std::move(socket), std::move(keys), kPatienceWithClient);
    send_whole(*first, welcome);
    auto stream = std::make_unique<LastingStream>(
        std::move(first),
        [&resumptions](std::uint64_t received, const Lost& why) { return resumptions.take(received, why); });
    resumptions.stream_ = stream.get();
    return {std::move(stream), nullptr};
  }
  welcome.has_memory = 1;
  welcome.memory = memory->sizes();
  auto wakers = RingStream::Wakers::make();
  const int descriptors[] = {memory->descriptor(), wakers.to_server.get(), wakers.room_to_server.get(),
                             wakers.to_client.get(), wakers.room_to_client.get()};
  if (!pass(socket.get(), welcome, descriptors)) throw Lost{"the connection was closed"};
  return {make_ring(RingStream::Side::server, memory, std::move(wakers), std::move(socket)), memory};
}

}  // namespace grus::channel
