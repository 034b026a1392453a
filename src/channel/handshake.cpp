#include "channel/handshake.hpp"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "channel/pass.hpp"
#include "channel/ring.hpp"

namespace grus::channel {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kBulk = std::size_t{64} << 20;
constexpr unsigned kCoresToSpin = 8;  // fewer, and who looks again and again keeps somebody from working
constexpr auto kSpin = 20us;
constexpr auto kAttempt = 1000ms;  // to connect again
constexpr auto kBetweenAttempts = 100ms;
constexpr auto kPatienceIfClosed = 700ms;

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
bool receive_whole(const Descriptor& socket, What& what) {
  return recv(socket.get(), &what, sizeof what, MSG_WAITALL) == static_cast<ssize_t>(sizeof what);
}

// How long sending and receiving may wait; 0: for ever.
void set_limit(const Descriptor& socket, std::chrono::milliseconds limit) {
  const timeval time{limit.count() / 1000, limit.count() % 1000 * 1000};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

// A server that can be reached and has no such session has ended it.
LastingStream::Connected reconnect(const Address& address, const Welcome& welcome, std::uint64_t received,
                                   const Lost& why) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::seconds{welcome.grace};
  log::warn("server", "{}: {}; connecting again", address.text(), why.what());
  for (;;) {
    try {
      Descriptor socket = connect_to(address, kAttempt);
      const struct {
        Preamble preamble;
        Resume resume;
      } whole{{.purpose = Preamble::Purpose::resume, .session = welcome.session}, {welcome.key, received}};
      Resumed resumed;
      if (send_whole(socket, whole) && receive_whole(socket, resumed)) {
        if (!resumed.is_known) throw Lost{"it has ended the session", Lost::How::refused};
        if (send_whole(socket, GoesOn{})) {
          set_limit(socket, 0ms);
          log::warn("server", "{}: connected again", address.text());
          return {std::make_unique<SocketStream>(std::move(socket)), resumed.received};
        }
      }
    } catch (const Lost& lost) {
      if (lost.how == Lost::How::refused) throw;
    }
    if (Clock::now() > until) throw Lost{fmt::format("{}, and can't be reached for {} s", why.what(), welcome.grace)};
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

// Whether the client goes on with this connection. If it doesn't say so in time nothing more is taken from it, and what
// has come by then counts.
bool is_taken(const Descriptor& socket) {
  GoesOn goes_on;
  if (receive_whole(socket, goes_on)) return true;
  shutdown(socket.get(), SHUT_RDWR);
  return recv(socket.get(), &goes_on, sizeof goes_on, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof goes_on);
}

Descriptor make_waker() { return Descriptor{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}; }

}  // namespace

std::uint16_t common_protocol(const Preamble& preamble) {
  const std::uint16_t newest = std::min(preamble.newest, kProtocol);
  return newest >= std::max(preamble.oldest, kOldestProtocol) ? newest : 0;
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
  }
  return "it refuses, for a reason that a newer version knows";
}

Opened open_channel(const Address& address) { return open_channel(connect_to(address), address); }

Opened open_channel(Descriptor socket, const Address& address) {
  const std::string server = address.text();
  if (!send_whole(socket, Preamble{})) throw Lost{fmt::format("{}: it closed the connection", server)};
  auto passed = receive_passed<Welcome>(socket.get());
  if (!passed) throw Lost{fmt::format("{}: it closed the connection", server)};
  const Welcome& welcome = passed->what;
  if (welcome.magic != kMagic) throw Lost{fmt::format("{}: that is no server of Grus", server)};
  if (welcome.refusal != Refusal::none) throw Lost{fmt::format("{}: {}", server, text_of(welcome.refusal))};
  if (welcome.protocol < kOldestProtocol || welcome.protocol > kProtocol) {
    throw Lost{fmt::format("{}: it speaks protocols {} to {}, this program {} to {}: update the {}", server,
                           welcome.oldest, welcome.newest, kOldestProtocol, kProtocol,
                           welcome.newest < kOldestProtocol ? "server" : "client")};
  }
  if (!welcome.has_memory) {
    const auto again = [=](std::uint64_t received, const Lost& why) {
      return reconnect(address, welcome, received, why);
    };
    return {std::make_unique<LastingStream>(std::make_unique<SocketStream>(std::move(socket)), again), nullptr};
  }
  auto& got = passed->descriptors;
  auto memory = SharedMemory::map(std::move(got[0]), welcome.memory);
  if (!memory) throw Lost{fmt::format("{}: no address space for its shared memory", server)};
  RingStream::Wakers wakers{std::move(got[1]), std::move(got[2]), std::move(got[3]), std::move(got[4])};
  return {make_ring(RingStream::Side::client, memory, std::move(wakers), std::move(socket)), memory};
}

void Resumptions::offer(Descriptor socket) {
  set_limit(socket, kAttempt);
  Resume resume;
  if (!receive_whole(socket, resume)) return;
  std::uint64_t differs = 0;
  for (std::size_t index = 0; index < key_.size(); ++index) differs |= key_[index] ^ resume.key[index];
  if (differs != 0 || !stream_) {
    send_whole(socket, Resumed{});
    return;
  }
  stream_->renew([&] {
    const std::lock_guard lock{mutex_};
    offered_ = std::move(socket);
    received_ = resume.received;
    changed_.notify_one();
  });
}

// A client whose system closed the connection has ended, unless it is back at once.
LastingStream::Connected Resumptions::take(std::uint64_t received, const Lost& why) {
  std::unique_lock lock{mutex_};
  const auto patience = why.how == Lost::How::closed ? kPatienceIfClosed : std::chrono::milliseconds{grace_};
  const auto until = std::chrono::steady_clock::now() + patience;
  while (changed_.wait_until(lock, until, [&] { return offered_.get() >= 0; })) {
    Descriptor socket = std::move(offered_);
    if (!send_whole(socket, Resumed{1, received}) || !is_taken(socket)) continue;
    set_limit(socket, 0ms);
    return {std::make_unique<SocketStream>(std::move(socket)), received_};
  }
  throw Lost{why.what()};
}

Opened welcome_client(Descriptor socket, const Preamble& preamble, std::size_t arena, std::uint64_t session,
                      Resumptions& resumptions) {
  Welcome welcome;
  welcome.protocol = common_protocol(preamble);
  std::shared_ptr<SharedMemory> memory;
  if (is_unix(socket) && welcome.protocol != 0) {
    memory = SharedMemory::make({kRingsSize, kBulk, arena});
    if (!memory) memory = SharedMemory::make({kRingsSize, kBulk, 0});
  }
  if (!memory) {
    if (getrandom(welcome.key.data(), sizeof welcome.key, 0) != static_cast<ssize_t>(sizeof welcome.key))
      throw Lost{"no random numbers for the session's key"};
    welcome.session = session;
    welcome.grace = static_cast<std::uint32_t>(resumptions.grace_.count());
    resumptions.key_ = welcome.key;
    send_whole(socket, welcome);
    if (welcome.protocol == 0) throw Lost{"another protocol"};
    auto stream = std::make_unique<LastingStream>(
        std::make_unique<SocketStream>(std::move(socket)),
        [&resumptions](std::uint64_t received, const Lost& why) { return resumptions.take(received, why); });
    resumptions.stream_ = stream.get();
    return {std::move(stream), nullptr};
  }
  welcome.has_memory = 1;
  welcome.memory = memory->sizes();
  RingStream::Wakers wakers{make_waker(), make_waker(), make_waker(), make_waker()};
  const int descriptors[] = {memory->descriptor(), wakers.to_server.get(), wakers.room_to_server.get(),
                             wakers.to_client.get(), wakers.room_to_client.get()};
  if (!pass(socket.get(), welcome, descriptors)) throw Lost{"the connection was closed"};
  return {make_ring(RingStream::Side::server, memory, std::move(wakers), std::move(socket)), memory};
}

}  // namespace grus::channel
