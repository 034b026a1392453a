// Waiting on a ring with more than one thread, as a client does: the one that asked something, and the one that takes
// care of answers that nobody waits for.
#include "channel/ring.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <thread>

namespace grus::channel {
namespace {

using namespace std::chrono_literals;

Descriptor copy_of(const Descriptor& descriptor) { return Descriptor{fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0)}; }

class RingTest : public testing::Test {
 protected:
  RingTest() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error{"no socket pair"};
    memory_ = SharedMemory::make({.rings = kRingsSize});
    RingStream::Wakers wakers = RingStream::Wakers::make();
    to_client_ = copy_of(wakers.to_client);
    RingStream::Wakers copies{copy_of(wakers.to_server), copy_of(wakers.room_to_server), copy_of(wakers.to_client),
                              copy_of(wakers.room_to_client)};
    server_ = std::make_unique<RingStream>(RingStream::Side::server, memory_, std::move(wakers), Descriptor{ends[0]});
    client_ = std::make_unique<RingStream>(RingStream::Side::client, memory_, std::move(copies), Descriptor{ends[1]});
  }

  RingState& to_client() { return reinterpret_cast<RingState*>(memory_->rings())[1]; }

  // As the server does for data that a thread of the client finds, and takes, before it sleeps.
  void wake_for_nothing() {
    const std::uint64_t one = 1;
    if (to_client().consumer_sleeps.exchange(0) != 0) (void)!write(to_client_.get(), &one, sizeof one);
  }

  void send_byte() {
    char byte = 'x';
    iovec part{&byte, 1};
    std::span<iovec> parts{&part, 1};
    server_->send_some(parts);
  }

  void receive_byte() {
    char byte = 0;
    while (client_->receive_some(&byte, 1) == 0) client_->wait({.in = true});
  }

  std::shared_ptr<SharedMemory> memory_;
  Descriptor to_client_;
  std::unique_ptr<RingStream> server_;
  std::unique_ptr<RingStream> client_;
};

TEST_F(RingTest, AWakeThatOneDropsIsNotTheOthersLast) {
  for (int round = 0; round < 500; ++round) {
    std::future<void> receiver = std::async(std::launch::async, [&] { receive_byte(); });
    std::future<void> bystander = std::async(std::launch::async, [&] { client_->wait({.in = true}); });
    std::this_thread::sleep_for(200us);  // they sleep
    wake_for_nothing();
    bystander.wait_for(1ms);
    send_byte();
    const bool was_woken = receiver.wait_for(10s) == std::future_status::ready;
    if (!was_woken) client_->shut();  // so that the test ends
    ASSERT_TRUE(was_woken) << "in round " << round;
    to_client().consumer_sleeps.store(1);
    wake_for_nothing();
    bystander.wait();
  }
}

}  // namespace
}  // namespace grus::channel
