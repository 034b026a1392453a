// Who may bring pages to a session of another server: whoever has its ticket, and nobody else.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>

#include "channel/handshake.hpp"

namespace grus::test {
namespace {

using channel::Descriptor;
using channel::Security;
using channel::Ticket;

struct Ends {
  Ends() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    here = Descriptor{ends[0]};
    there = Descriptor{ends[1]};
  }
  Descriptor here;
  Descriptor there;
};

// True if who comes with the one is let in by who expects the other.
bool is_let_in(const Ticket& shown, const Ticket& expected, Security security) {
  Ends ends;
  auto comes = std::async(std::launch::async, [&] {
    try {
      return channel::open_for_pages(std::move(ends.here), security, shown) != nullptr;
    } catch (const channel::Lost&) {
      return false;
    }
  });
  bool is_welcome = true;
  try {
    EXPECT_TRUE(channel::welcome_pages(std::move(ends.there), security, expected));
  } catch (const channel::Lost&) {
    is_welcome = false;
  }
  EXPECT_EQ(comes.get(), is_welcome);
  return is_welcome;
}

TEST(TicketTest, OnlyTheRightOneIsGood) {
  const Ticket ticket = channel::new_ticket(7);
  for (const Security security : {Security::plain, Security::tls}) {
    EXPECT_TRUE(is_let_in(ticket, ticket, security));
    for (const std::size_t byte : {std::size_t{0}, ticket.key.size() - 1}) {
      Ticket other = ticket;
      other.key[byte] ^= 0x80;
      EXPECT_FALSE(is_let_in(other, ticket, security));
    }
    EXPECT_FALSE(is_let_in(Ticket{7, {}}, ticket, security));
  }
}

TEST(TicketTest, NoTwoAreAlike) { EXPECT_NE(channel::new_ticket(7).key, channel::new_ticket(7).key); }

// What comes back is sent before: it need not be waited for.
void ask(std::string_view answer) {
  Ends ends;
  ASSERT_EQ(send(ends.there.get(), answer.data(), answer.size(), 0), static_cast<ssize_t>(answer.size()));
  shutdown(ends.there.get(), SHUT_WR);
  channel::ask_for_pages(ends.here, Security::plain, 7, std::chrono::seconds{10});
  channel::Preamble preamble;
  EXPECT_EQ(recv(ends.there.get(), &preamble, sizeof preamble, MSG_WAITALL), static_cast<ssize_t>(sizeof preamble));
  EXPECT_EQ(preamble.purpose, channel::Preamble::Purpose::pages);
  EXPECT_EQ(preamble.session, 7U);
}

std::string_view bytes_of(const channel::Welcome& welcome) {
  return {reinterpret_cast<const char*>(&welcome), sizeof welcome};
}

TEST(TicketTest, OnlyServersAreGivenTo) {
  channel::Welcome welcome;
  welcome.protocol = channel::kProtocol;
  EXPECT_NO_THROW(ask(bytes_of(welcome)));
  EXPECT_THROW(ask(bytes_of(welcome).substr(1)), channel::Lost);
  EXPECT_THROW(ask(std::string(100, 'x')), channel::Lost);
  EXPECT_THROW(ask(""), channel::Lost);
  welcome.refusal = channel::Refusal::stranger;
  EXPECT_THROW(ask(bytes_of(welcome)), channel::Lost);
  Ends silent;
  EXPECT_THROW(channel::ask_for_pages(silent.here, Security::plain, 7, std::chrono::milliseconds{1}), channel::Lost);
}

}  // namespace
}  // namespace grus::test
