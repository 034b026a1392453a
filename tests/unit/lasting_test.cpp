// Streams that outlive their connections: whatever is cut, and whenever, the bytes come whole, in order and once.
#include "channel/lasting.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <random>
#include <thread>

#include "channel/handshake.hpp"
#include "channel/tls.hpp"
#include "tls_keys.hpp"

namespace grus::channel {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 60s;
constexpr std::uint64_t kNotKnown = std::uint64_t{1} << 62;

// Both ends of a connection on this host.
enum class Kind { unix_socket, tcp, tls };
std::array<Descriptor, 2> connect_both(Kind kind) {
  if (kind == Kind::unix_socket) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    return {Descriptor{ends[0]}, Descriptor{ends[1]}};
  }
  static const Address wanted{Address::Kind::tcp, "127.0.0.1", "0"};
  static const Descriptor listening = listen_at(wanted);
  static const Address address = bound_at(listening, wanted);
  Descriptor first = connect_to(address);
  return {std::move(first), accept_from(listening)};
}

// Connects two streams, and again whenever both have lost their connection.
class Network {
 public:
  explicit Network(Kind kind) : kind_{kind} {
    auto ends = connect();
    for (std::size_t side = 0; side < 2; ++side) {
      streams_[side] = std::make_unique<LastingStream>(
          std::move(ends[side]), [this, side](std::uint64_t received, const Lost&) { return meet(side, received); });
    }
  }
  LastingStream& side(std::size_t number) { return *streams_[number]; }

  // As seen from either side, or from both, in one direction or both.
  void cut(std::mt19937& random) {
    const std::lock_guard lock{mutex_};
    const auto sides = 1 + random() % 3;
    constexpr int kHow[] = {SHUT_RDWR, SHUT_RDWR, SHUT_WR};
    for (std::size_t side = 0; side < 2; ++side) {
      if (sides & (1U << side)) shutdown(spies_[side].get(), kHow[random() % std::size(kHow)]);
    }
  }

 private:
  using Ends = std::array<std::unique_ptr<Stream>, 2>;

  Ends connect() {
    auto ends = connect_both(kind_);
    for (std::size_t side = 0; side < 2; ++side) spies_[side] = Descriptor{dup(ends[side].get())};
    if (kind_ != Kind::tls)
      return {std::make_unique<SocketStream>(std::move(ends[0])), std::make_unique<SocketStream>(std::move(ends[1]))};
    auto client = std::make_unique<TlsStream>(std::move(ends[0]), TestKeys::of(Keys::Side::client), "127.0.0.1");
    auto server = std::make_unique<TlsStream>(std::move(ends[1]), TestKeys::of(Keys::Side::server));
    const auto until = TlsStream::Clock::now() + kPatience;
    auto accepted = std::async(std::launch::async, [&] { server->finish_handshake(until); });
    client->finish_handshake(until);
    accepted.get();
    return {std::move(client), std::move(server)};
  }

  LastingStream::Connected meet(std::size_t side, std::uint64_t received) {
    std::unique_lock lock{mutex_};
    received_[side] = received;
    is_here_[side] = true;
    if (is_here_[1 - side]) {
      fresh_ = connect();
      is_here_ = {};
      ++meetings_;
      met_.notify_all();
    } else {
      const auto before = meetings_;
      met_.wait(lock, [&] { return meetings_ != before; });
    }
    return {std::move(fresh_[side]), received_[1 - side]};
  }

  const Kind kind_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable met_;
  std::array<Descriptor, 2> spies_;
  Ends fresh_;
  std::array<bool, 2> is_here_{};
  std::array<std::uint64_t, 2> received_{};
  std::uint64_t meetings_ = 0;
  std::array<std::unique_ptr<LastingStream>, 2> streams_;
};

// What is at some place of an endless stream.
std::byte byte_at(std::uint64_t place) {
  return static_cast<std::byte>((place * 0x9e3779b97f4a7c15U + (place >> 9)) >> 56);
}

void send_from(Stream& stream, std::uint64_t& place, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = byte_at(place++);
  iovec parts[3] = {{bytes.data(), size / 3}, {bytes.data() + size / 3, 0}, {bytes.data() + size / 3, size - size / 3}};
  stream.send(parts);
  std::fill(bytes.begin(), bytes.end(), std::byte{0xee});  // it is the sender's again
}

void expect_from(std::span<const std::byte> bytes, std::uint64_t& place) {
  for (const std::byte byte : bytes) {
    if (byte == byte_at(place++)) continue;
    ADD_FAILURE() << "wrong byte at " << place - 1;
    std::_Exit(1);
  }
}

// In one way or another.
std::size_t receive_one_way(Stream& stream, std::span<std::byte> to, std::mt19937& random) {
  if (random() % 2 == 0) return stream.receive_much(to.data(), to.size());
  for (;;) {
    if (random() % 2 == 0) stream.wait({.in = true, .limit = random() % 3 == 0 ? std::optional{1ms} : std::nullopt});
    if (const auto received = stream.receive_some(to.data(), to.size()); received != 0) return received;
  }
}

// What was sent last may have to be sent again.
void stay_until(const std::function<bool()>& over, Stream& stream) {
  while (!over()) stream.wait({.ends = true, .limit = 1ms});
}

// Sizes from a byte to more than a socket holds.
std::size_t some_size(std::mt19937& random) { return 1 + random() % (std::size_t{1} << random() % 20); }

template <typename... Bodies>
void run_all(Bodies... bodies) {
  std::vector<std::future<void>> running;
  (running.push_back(std::async(std::launch::async, bodies)), ...);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (auto& one : running) {
    if (one.wait_until(until) == std::future_status::ready) {
      one.get();
      continue;
    }
    std::fprintf(stderr, "it hangs\n");
    std::_Exit(1);
  }
}

// Both sides send and receive all the time, until there were enough cuts.
class Traffic {
 public:
  Traffic(Stream& first, Stream& second) : sides_{&first, &second} {}

  void run(std::size_t cuts, const std::function<void()>& cut) {
    run_all([&] { send(0); }, [&] { send(1); }, [&] { receive(0); }, [&] { receive(1); },
            [&] {
              for (std::size_t left = cuts; left != 0; --left) cut();
              enough_ = true;
            });
  }

 private:
  // Who waits for much gets nothing before that much has come.
  static constexpr std::size_t kMost = std::size_t{1} << 20;

  void send(std::size_t side) {
    std::mt19937 random{static_cast<unsigned>(side)};
    std::uint64_t place = 0;
    while (!enough_) send_from(*sides_[side], place, some_size(random));
    end_[side] = place + kMost;
    send_from(*sides_[side], place, kMost);
    stay_until([&] { return received_all_ == 2; }, *sides_[side]);
  }
  void receive(std::size_t side) {
    std::mt19937 random{static_cast<unsigned>(side + 2)};
    std::uint64_t place = 0;
    std::vector<std::byte> bytes(kMost);
    while (place != end_[1 - side]) {
      const std::span to{bytes.data(), std::min(some_size(random), end_[1 - side] - place)};
      expect_from(to.first(receive_one_way(*sides_[side], to, random)), place);
    }
    ++received_all_;
  }

  Stream* const sides_[2];
  std::atomic<bool> enough_{false};
  std::array<std::atomic<std::uint64_t>, 2> end_{kNotKnown, kNotKnown};
  std::atomic<int> received_all_{0};
};

const char* name_of(Kind kind) { return kind == Kind::tls ? "tls" : kind == Kind::tcp ? "tcp" : "unix"; }

class Lasting : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Sockets, Lasting, testing::Values(Kind::unix_socket, Kind::tcp, Kind::tls),
                         [](const auto& about) { return name_of(about.param); });

// With TLS every cut costs a handshake.
std::size_t cuts_for(Kind kind) { return kind == Kind::tls ? 500 : 2000; }

TEST_P(Lasting, BringsAllBytesBothWaysWhateverIsCut) {
  Network network{GetParam()};
  std::mt19937 random{7};
  Traffic{network.side(0), network.side(1)}.run(cuts_for(GetParam()), [&] {
    network.cut(random);
    std::this_thread::sleep_for(std::chrono::microseconds{random() % 500});
  });
}

// One thread on each side, which waits for nothing but the answer: whatever is forgotten is waited for, for ever.
TEST_P(Lasting, ForgetsNoQuestionAndNoAnswer) {
  Network network{GetParam()};
  std::atomic<bool> enough{false};
  std::atomic<int> ended{0};
  const auto exchange = [&](std::size_t side) {
    std::mt19937 random{1};  // the same sizes on both sides
    std::mt19937 own{static_cast<unsigned>(side + 3)};
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::vector<std::byte> bytes(256 * 1024);
    for (std::uint8_t is_last = 0; !is_last;) {
      const std::size_t size = 1 + random() % (std::size_t{1} << random() % 18);
      // Sometimes one after the other, sometimes both at once.
      const bool first = random() % 3 == 0 || random() % 2 == side;
      if (first) send_from(network.side(side), sent, size);
      for (std::size_t left = size; left != 0;) {
        const auto now = receive_one_way(network.side(side), {bytes.data(), left}, own);
        expect_from({bytes.data(), now}, received);
        left -= now;
      }
      if (!first) send_from(network.side(side), sent, size);
      // The first side says when it is over.
      is_last = enough;
      iovec part{&is_last, 1};
      if (side == 0) {
        network.side(side).send({&part, 1});
      } else {
        network.side(side).receive_much(&is_last, 1);
      }
    }
    ++ended;
    stay_until([&] { return ended == 2; }, network.side(side));
  };
  const auto cut = [&] {
    std::mt19937 random{8};
    for (std::size_t left = cuts_for(GetParam()); left != 0; --left) {
      network.cut(random);
      std::this_thread::sleep_for(std::chrono::microseconds{random() % 300});
    }
    enough = true;
  };
  run_all([&] { exchange(0); }, [&] { exchange(1); }, cut);
}

TEST_P(Lasting, EndsForBothWhoSendAndWhoReceive) {
  Network network{GetParam()};
  const auto receive = [&] {
    std::byte byte;
    EXPECT_THROW(network.side(0).receive_much(&byte, 1), Lost);
  };
  const auto wait = [&] { EXPECT_THROW(while (true) network.side(0).wait({.ends = true}), Lost); };
  const auto shut = [&] {
    std::this_thread::sleep_for(50ms);  // most of the time both wait by then
    network.side(0).shut();
  };
  run_all(receive, wait, shut);
  iovec part{nullptr, 0};
  EXPECT_THROW(network.side(0).send({&part, 1}), Lost);
}

// A peer that says that it has less than it has already had, or more than it was ever sent.
TEST(LastingPlace, IsCheckedWhenAPeerComesBack) {
  for (const std::uint64_t claimed : {std::uint64_t{2}, std::uint64_t{100}}) {
    auto [mine, other] = connect_both(Kind::tcp);
    const Descriptor spy{dup(mine.get())};
    LastingStream stream{std::make_unique<SocketStream>(std::move(mine)), [&](std::uint64_t, const Lost&) {
                           auto [again, ignored] = connect_both(Kind::tcp);
                           return LastingStream::Connected{std::make_unique<SocketStream>(std::move(again)), claimed};
                         }};
    std::array<char, 8> bytes{};
    iovec part{bytes.data(), bytes.size()};
    stream.send({&part, 1});
    ASSERT_EQ(recv(other.get(), bytes.data(), bytes.size(), MSG_WAITALL), 8);
    while (SocketStream{Descriptor{dup(spy.get())}}.outstanding() != 0) std::this_thread::yield();
    stream.let_go();
    shutdown(spy.get(), SHUT_RDWR);
    EXPECT_THROW(stream.receive_much(bytes.data(), 1), Lost);
  }
}

// The two ends as programs and workers use them: a client that connects again, and a worker that is offered sockets.
class Resuming : public testing::TestWithParam<Security> {
 protected:
  static constexpr std::uint64_t kSession = 42;

  Resuming() : listening_{listen_at(wanted_)}, address_{bound_at(listening_, wanted_)} {
    accepting_ = std::thread{[this] { accept_all(); }};
    client_ = open_channel(connect_to(address_), address_, keys_of(Keys::Side::client)).stream;
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return server_ != nullptr; });
  }
  ~Resuming() override {
    shutdown(listening_.get(), SHUT_RDWR);
    accepting_.join();
    for (std::thread& one : offering_) one.join();
  }

  void cut() {
    const std::lock_guard lock{mutex_};
    shutdown(newest_.get(), SHUT_RDWR);
  }

  std::unique_ptr<Stream> client_;
  std::unique_ptr<Stream> server_;

 private:
  static std::shared_ptr<const Keys> keys_of(Keys::Side side) {
    return GetParam() == Security::tls ? TestKeys::of(side) : nullptr;
  }
  // As the server's door does it. The keys are those of the secret.
  static std::shared_ptr<const Keys> let_in(const Descriptor& socket) {
    if (GetParam() == Security::plain) return nullptr;
    const Guest guest = admit(Descriptor{dup(socket.get())}, TestKeys::of(Keys::Side::server), 10s);
    EXPECT_EQ(guest.name, "client");
    return std::make_shared<Keys>(Keys::Side::server, guest.secret);
  }
  void accept_all() {
    for (;;) {
      Descriptor socket = accept_from(listening_);
      const std::lock_guard lock{mutex_};
      if (socket.get() < 0) return;
      Preamble preamble;
      if (recv(socket.get(), &preamble, sizeof preamble, MSG_WAITALL) != sizeof preamble) continue;
      newest_ = Descriptor{dup(socket.get())};
      if (preamble.purpose == Preamble::Purpose::resume) {
        EXPECT_EQ(preamble.session, kSession);
        resumptions_.expect();
        offering_.emplace_back([this, again = std::move(socket)]() mutable {
          try {
            auto keys = let_in(again);
            resumptions_.offer(std::move(again), std::move(keys));
          } catch (const Lost&) {  // it was cut already, and comes again
          }
        });
      } else {
        auto keys = let_in(socket);
        server_ = welcome_client(std::move(socket), std::move(keys), preamble, 0, kSession, resumptions_).stream;
        changed_.notify_all();
      }
    }
  }

  const Address wanted_{Address::Kind::tcp, "127.0.0.1", "0"};
  Descriptor listening_;
  Address address_;
  Resumptions resumptions_{10s};
  std::mutex mutex_;
  std::condition_variable changed_;
  Descriptor newest_;
  std::vector<std::thread> offering_;
  std::thread accepting_;
};

INSTANTIATE_TEST_SUITE_P(Sockets, Resuming, testing::Values(Security::plain, Security::tls),
                         [](const auto& about) { return about.param == Security::tls ? "tls" : "plain"; });

TEST_P(Resuming, BringsAllBytesBothWays) {
  std::mt19937 random{9};
  Traffic{*client_, *server_}.run(300, [&] {
    cut();
    std::this_thread::sleep_for(std::chrono::microseconds{random() % 2000});
  });
}

// The worker may compute for minutes before it looks at its connection again.
TEST_P(Resuming, WaitsForNobodyAtTheServer) {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  send_from(*client_, sent, 1000);
  cut();
  std::byte byte;
  EXPECT_EQ(client_->receive_some(&byte, 1), 0U);  // connects again, and nothing has come
  send_from(*client_, sent, 1000);
  std::vector<std::byte> bytes(2000);
  for (std::size_t left = bytes.size(); left != 0;) left -= server_->receive_much(bytes.data() + 2000 - left, left);
  expect_from(bytes, received);
}

}  // namespace
}  // namespace grus::channel
