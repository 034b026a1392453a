#include "executor/connection.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/log.hpp"
#include "base/thread.hpp"

namespace grus {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kBatch = 16 * 1024;
constexpr auto kDry = 20us;     // after so long without a message the server may have nothing left to do
constexpr auto kSoon = 100us;   // and no command waits longer than this
constexpr auto kQuiet = 100ms;  // without a message the thread listens to what the server says unasked

// For comparisons: off lets every message leave alone.
std::size_t batch_size() {
  const char* const value = std::getenv("GRUS_BATCHES");
  return value && std::string_view{value} == "off" ? 0 : kBatch;
}

// A forked child has the parent's sockets, but none of its sessions: it lets go of them, so that a server notices when
// the parent ends.
class AllConnections {
 public:
  static AllConnections& instance() {
    static auto* const all = new AllConnections;
    return *all;
  }
  void add(std::function<void()> let_go, const Connection* connection) {
    const std::lock_guard lock{mutex_};
    all_[connection] = std::move(let_go);
  }
  void remove(const Connection* connection) {
    const std::lock_guard lock{mutex_};
    all_.erase(connection);
  }

 private:
  AllConnections() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     for (const auto& [connection, let_go] : instance().all_) let_go();
                     instance().mutex_.unlock();
                   });
  }
  std::mutex mutex_;  // guards all_
  std::map<const Connection*, std::function<void()>> all_;
};

}  // namespace

Connection::Connection(channel::Opened channel, std::string server)
    : stream_{std::move(channel.stream)},
      memory_{std::move(channel.memory)},
      server_{std::move(server)},
      timer_{timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)},
      batch_size_{batch_size()},
      last_sent_{Clock::now()},
      input_{*stream_} {
  const auto let_go = [this] {
    lost_ = true;
    stream_->abandon();
  };
  AllConnections::instance().add(let_go, this);
  thread_ = start_thread("grus-remote", [this] { run(); });
}

void Connection::close() {
  if (!thread_.joinable()) return;
  flush();
  AllConnections::instance().remove(this);
  with_lock([&] {
    if (lost_.exchange(true)) return;
    stream_->shut();
    fail_pending();
  });
  wakes_ = Wakes::never;  // it may be about to sleep
  wake_thread(Wakes::now);
  thread_.join();
}

Connection::Number Connection::expect(Pending pending) {
  const std::lock_guard lock{in_mutex_};
  const Number number = next_number_++;
  const bool waited_for = pending.on_answer == nullptr;
  if (lost_) {
    if (!waited_for) pending.on_answer(nullptr);
    pending.done = true;
  } else if (!waited_for && expected_++ == 0 && waiting_ == 0) {
    wake_thread(Wakes::now);
  }
  if (waited_for || !pending.done) pending_.emplace(number, std::move(pending));
  return number;
}

std::optional<Bytes> Connection::wait(Number number) {
  count_round_trip();
  flush();
  std::optional<Bytes> body;
  wait_until([&] {
    const auto found = pending_.find(number);
    if (!found->second.done) return false;
    body = std::move(found->second.body);
    pending_.erase(found);
    return true;
  });
  return body;
}

void Connection::wait_until(const std::function<bool()>& done) {
  std::unique_lock lock{in_mutex_};
  ++waiting_;
  while (!done()) {
    if (receiving_ || lost_) {
      changed_.wait(lock);
      continue;
    }
    receiving_ = true;
    lock.unlock();
    receive_one();
    lock.lock();
    receiving_ = false;
    changed_.notify_all();
  }
  has_waited();
  changed_.notify_all();
}

// With in_mutex_ held: who receives what is still to come, if nobody waits for it.
void Connection::leave_to_thread() {
  if (waiting_ == 0 && expected_ != 0) wake_thread(Wakes::now);
}

void Connection::has_waited() {
  --waiting_;
  leave_to_thread();
}

void Connection::flush() {
  const std::lock_guard lock{out_mutex_};
  if (!out_.empty()) send(nullptr);
}

void Connection::send_soon() {
  const auto is_dry = [&] {
    return !stream_->is_awake() && Clock::now() - last_sent_.load(std::memory_order_relaxed) > kDry;
  };
  if (out_.size() >= batch_size_ || is_dry()) {
    send(nullptr);
  } else {
    wake_thread(Wakes::soon);
  }
}

void Connection::send(const HostBlock* bulk) {
  Bytes packed;
  iovec parts[2] = {{out_.data(), out_.size()}, {nullptr, 0}};
  if (bulk && bulk->is_packed()) {
    parts[1] = {bulk->start, bulk->size()};
  } else if (bulk) {
    packed.resize(bulk->size());
    copy_block(bulk->packed_at(packed.data()), *bulk);
    parts[1] = {packed.data(), packed.size()};
  }
  try {
    if (goes_in_blocks(parts[1].iov_len)) {
      send_parts({parts, 1});
      packer_->send({static_cast<const std::byte*>(parts[1].iov_base), parts[1].iov_len},
                    [this](std::span<iovec> block) { send_parts(block); });
    } else {
      send_parts({parts, parts[1].iov_len != 0 ? 2U : 1U});
    }
  } catch (const channel::Lost& lost) {
    const std::lock_guard lock{in_mutex_};
    lose(lost.what());
  }
  left_ += out_.size();
  out_.clear();
  last_sent_.store(Clock::now(), std::memory_order_relaxed);
}

void Connection::send_parts(std::span<iovec> parts) {
  while (!parts.empty() && !is_lost()) {
    stream_->send_some(parts);
    if (!parts.empty()) wait_for_room();
  }
  stream_->let_go();
}

// The server may take nothing before it is rid of what it has to say.
void Connection::wait_for_room() {
  std::unique_lock lock{in_mutex_};
  const bool receives = !receiving_;
  receiving_ |= receives;
  lock.unlock();
  const bool has_some = receives && input_.has_some();
  const bool in = has_some || stream_->wait({.in = receives, .out = true}).in;
  // It may have been the connection's end that came. On a new one the server waits for what is left to send.
  if (in && input_.take_some()) receive_one();
  lock.lock();
  if (!receives) return;
  receiving_ = false;
  changed_.notify_all();
  leave_to_thread();
}

// The one who received it has said so, and no other receives meanwhile.
void Connection::receive_one() {
  try {
    const channel::Head head = input_.read_head();
    Bytes body;
    if (head.kind == channel::Kind::output) {
      input_.read_body(head, body);
      std::fwrite(body.data(), 1, body.size(), stdout);
      return;
    }
    if (head.kind == channel::Kind::ended) {
      input_.read_body(head, body);
      throw channel::Lost{"it ended this session: " + wire::Reader{body}.take<std::string>()};
    }
    if (head.kind == channel::Kind::step_aside) {
      input_.read_body(head, body);
      if (const auto step_aside = on_step_aside.load()) step_aside();
      return;
    }
    Incoming bulk;
    if (head.kind == channel::Kind::answer) {
      const std::lock_guard lock{in_mutex_};
      const auto found = pending_.find(head.number);
      if (found == pending_.end()) throw wire::BadMessage{"an answer that nobody asked for"};
      bulk = found->second.bulk;
    }
    input_.read_body(head, body);
    if (head.bulk != 0) receive_bulk(bulk.to, head.bulk);
    wire::Reader reader{body};
    if (bulk.from && wire::Reader{body}.take<cl_int>() == CL_SUCCESS) copy_block(bulk.to, bulk.to.packed_at(bulk.from));
    if (head.kind == channel::Kind::notice) {
      on_notice(reader);
      return;
    }
    OnAnswer on_answer;  // destroyed without the lock
    const std::lock_guard lock{in_mutex_};
    const auto found = pending_.find(head.number);
    if (found == pending_.end()) throw wire::BadMessage{"an answer that nobody asked for"};
    Pending& pending = found->second;
    if (!pending.on_answer) {
      pending.body = std::move(body);
      pending.done = true;
      return;
    }
    --expected_;
    on_answer = std::move(pending.on_answer);
    pending_.erase(found);
    on_answer(&reader);
  } catch (const std::runtime_error& error) {
    const std::lock_guard lock{in_mutex_};
    lose(error.what());
  }
}

void Connection::receive_bulk(const HostBlock& to, std::size_t size) {
  if (size != to.size()) throw wire::BadMessage{"an answer with more or less data than was asked for"};
  if (to.is_packed()) {
    input_.read(to.start, size);
    return;
  }
  Bytes packed(size);
  input_.read(packed.data(), size);
  copy_block(to, to.packed_at(packed.data()));
}

// With in_mutex_ held.
void Connection::lose(const std::string& why) {
  if (lost_.exchange(true)) return;
  log::error("server", "{}: {}; OpenCL calls fail from here on", server_, why);
  stream_->shut();
  fail_pending();
}

// With in_mutex_ held.
void Connection::fail_pending() {
  for (auto next = pending_.begin(); next != pending_.end();) {
    Pending& pending = next->second;
    pending.done = true;
    if (pending.on_answer) {
      const OnAnswer on_answer = std::move(pending.on_answer);
      next = pending_.erase(next);
      on_answer(nullptr);
    } else {
      ++next;
    }
  }
  expected_ = 0;
  changed_.notify_all();
}

// By a timer, since who sends is about to wait more often than not, and sends all then. It isn't stopped for that: the
// thread finds nothing to do.
void Connection::wake_thread(Wakes when) {
  Wakes before = wakes_.load();
  do {
    if (before >= when) return;
  } while (!wakes_.compare_exchange_weak(before, when));
  const std::chrono::nanoseconds time = when == Wakes::now ? 1ns : when == Wakes::soon ? kSoon : kQuiet;
  const itimerspec once{{0, 0}, {0, time.count()}};
  timerfd_settime(timer_.get(), 0, &once, nullptr);
}

// Whoever has the lock sends, and may wait for the server to receive, which may wait for this thread to do so.
bool Connection::send_rest() {
  const std::unique_lock lock{out_mutex_, std::try_to_lock};
  if (lock && !out_.empty()) send(nullptr);
  return lock.owns_lock();
}

void Connection::run() {
  while (!is_lost()) {
    wakes_ = Wakes::never;
    const bool is_sent = send_rest();  // else nobody may tell of what is left
    const bool is_quiet = Clock::now() - last_sent_.load(std::memory_order_relaxed) > kQuiet;
    bool has_some = false;  // read ahead by somebody who waited
    const bool receives = with_lock([&] {
      if ((expected_ == 0 && !is_quiet) || waiting_ != 0 || receiving_) return false;
      has_some = input_.has_some();
      return true;
    });
    channel::Stream::Wish wish{.in = receives, .also = timer_.get()};
    if (has_some) {
      wish.limit = 0ns;
    } else if (!is_sent) {
      wish.limit = kSoon;
    } else if (!receives) {
      wish.limit = kQuiet;
    }
    channel::Stream::Ready ready;
    try {
      ready = stream_->wait(wish);
    } catch (const channel::Lost& lost) {
      with_lock([&] { lose(lost.what()); });
    }
    if (ready.also) {
      std::uint64_t expirations = 0;
      (void)!read(timer_.get(), &expirations, sizeof expirations);
    }
    if (!ready.in && !has_some) continue;
    std::unique_lock lock{in_mutex_};
    if (receiving_ || waiting_ != 0) continue;
    receiving_ = true;
    lock.unlock();
    receive_one();
    lock.lock();
    receiving_ = false;
    changed_.notify_all();
  }
}

}  // namespace grus
