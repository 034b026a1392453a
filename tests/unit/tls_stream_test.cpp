// What streams over TLS do beyond what all streams do. That they outlive cuts in the middle of records is tested with
// the others that last.
#include <gtest/gtest.h>

#include <future>

#include "channel/tls.hpp"
#include "tls_keys.hpp"

namespace grus::channel {
namespace {

using namespace std::chrono_literals;

class TlsStreamTest : public testing::Test {
 protected:
  TlsStreamTest() {
    const Address wanted = Address::parse("tcp:127.0.0.1:0");
    const Descriptor listening = listen_at(wanted);
    const Address address = bound_at(listening, wanted);
    client_ = std::make_unique<TlsStream>(connect_to(address), TestKeys::of(Keys::Side::client), address.path);
    server_ = std::make_unique<TlsStream>(accept_from(listening), TestKeys::of(Keys::Side::server));
    const auto until = TlsStream::Clock::now() + 10s;
    auto accepted = std::async(std::launch::async, [&] { server_->finish_handshake(until); });
    client_->finish_handshake(until);
    accepted.get();
  }

  std::unique_ptr<TlsStream> client_;
  std::unique_ptr<TlsStream> server_;
};

TEST_F(TlsStreamTest, WaitsForNothingWhileARecordIsHalfRead) {
  char bytes[1000] = {};
  iovec part{bytes, sizeof bytes};
  client_->send({&part, 1});
  server_->wait({.in = true});
  EXPECT_EQ(server_->receive_some(bytes, 400), 400U);
  EXPECT_TRUE(server_->wait({.in = true}).in);
  EXPECT_EQ(server_->receive_some(bytes, sizeof bytes), 600U);
  EXPECT_FALSE(server_->wait({.in = true, .limit = 0ns}).in);
}

TEST_F(TlsStreamTest, CanStillBeReadWhenItIsShut) {
  char bytes[1000] = {};
  iovec part{bytes, sizeof bytes};
  client_->send({&part, 1});
  server_->wait({.in = true});
  server_->shut();
  EXPECT_EQ(server_->receive_some(bytes, sizeof bytes), sizeof bytes);
  EXPECT_THROW(server_->receive_some(bytes, sizeof bytes), Lost);
}

TEST_F(TlsStreamTest, CountsAsOutstandingWhatHasNotCome) {
  std::vector<char> bytes(std::size_t{64} << 20);
  iovec part{bytes.data(), bytes.size()};
  std::span<iovec> left{&part, 1};
  client_->send_some(left);  // nobody receives: what no socket holds is left
  ASSERT_FALSE(left.empty());
  const std::size_t sent = bytes.size() - left.front().iov_len;
  EXPECT_GT(client_->outstanding(), 0U);
  EXPECT_LE(client_->outstanding(), sent);
  auto receiving = std::async(std::launch::async, [&] {
    for (std::size_t received = 0; received != bytes.size();)
      received += server_->receive_much(bytes.data() + received, bytes.size() - received);
  });
  client_->send(left);
  receiving.get();
  while (client_->outstanding() != 0) std::this_thread::yield();
}

TEST_F(TlsStreamTest, KnowsWhoTheOtherSideIs) {
  EXPECT_EQ(server_->other_side(), "client");
  EXPECT_EQ(client_->other_side(), "Grus server");
}

}  // namespace
}  // namespace grus::channel
