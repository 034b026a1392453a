// The client's end of a channel. Messages are collected and leave in batches: when there is enough, when somebody
// waits, when the server has had nothing new for a moment, or soon after. Answers are received by whoever waits for
// one; a thread of Grus's own receives when nobody does and something is to come.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "channel/fields.hpp"
#include "channel/handshake.hpp"
#include "channel/input.hpp"
#include "executor/host_block.hpp"

namespace grus {

class Connection {
 public:
  using Number = std::uint64_t;
  using Position = std::uint64_t;  // of a message: the bytes of all before it, without bulk
  // Called once with the answer, or with null if the connection is lost. It comes on any thread, with the lock that
  // answers are noted under: it must only note or post.
  using OnAnswer = std::function<void(wire::Reader*)>;

  // Where an answer's data belongs, and where in shared memory the server puts it, if it does.
  struct Incoming {
    HostBlock to;
    const std::byte* from = nullptr;
  };

  Connection(channel::Opened channel, std::string server);
  // Nobody may use it any more. (Those that a session has at its exit are never destroyed: programs call OpenCL then.)
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::shared_ptr<channel::SharedMemory>& memory() const { return memory_; }

  template <typename... Values>
  void tell(channel::Kind kind, const Values&... values) {
    post(nullptr, nullptr, kind, values...);
  }
  // What gives the device nothing to do: it leaves with what comes next, or some time later. Where it is, for
  // take_back().
  template <typename... Values>
  Position tell_later(channel::Kind kind, const Values&... values) {
    const std::lock_guard lock{out_mutex_};
    put(0, 0, kind, values...);
    if (out_.size() >= batch_size_) {
      send(nullptr);
    } else {
      wake_thread(Wakes::late);
    }
    return last_;
  }
  // As if it had never been told. False if it has left, or if something comes after it.
  bool take_back(Position position) {
    const std::lock_guard lock{out_mutex_};
    if (position != last_ || position < left_) return false;
    out_.resize(position - left_);
    return true;
  }
  // The bulk is the program's to change again when this returns.
  template <typename... Values>
  void tell_with(const HostBlock& bulk, channel::Kind kind, const Values&... values) {
    post(&bulk, nullptr, kind, values...);
  }
  // The answer, or nothing if the connection is lost.
  template <typename... Values>
  std::optional<Bytes> ask(channel::Kind kind, const Values&... values) {
    Pending pending;
    return wait(post(nullptr, &pending, kind, values...));
  }
  template <typename... Values>
  std::optional<Bytes> ask_with(const HostBlock& bulk, channel::Kind kind, const Values&... values) {
    Pending pending;
    return wait(post(&bulk, &pending, kind, values...));
  }
  template <typename... Values>
  Number ask_later(const Incoming& bulk, OnAnswer on_answer, channel::Kind kind, const Values&... values) {
    Pending pending{.bulk = bulk, .on_answer = std::move(on_answer), .done = false, .body = {}};
    return post(nullptr, &pending, kind, values...);
  }
  void flush();
  void close();

  // Waits until done() says so, which is asked with the lock that answers are noted under.
  void wait_until(const std::function<bool()>& done);
  template <typename Body>
  auto with_lock(Body body) {
    const std::lock_guard lock{in_mutex_};
    return body();
  }

  // Whoever asks and will then wait: nobody else need receive for him.
  class Waiter {
   public:
    explicit Waiter(Connection& connection) : connection_{connection} {
      connection_.with_lock([&] { ++connection_.waiting_; });
    }
    ~Waiter() {
      connection_.with_lock([&] { connection_.has_waited(); });
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    Connection& connection_;
  };

  // Data is packed from here on, where that wins: the server knows how.
  void pack() {
    const std::lock_guard lock{out_mutex_};
    packer_.emplace(*stream_, channel::Packer::from_environment());
  }
  bool is_lost() const { return lost_.load(std::memory_order_acquire); }
  void count_round_trip() { round_trips_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t round_trips() const { return round_trips_.load(std::memory_order_relaxed); }

  std::function<void(wire::Reader&)> on_notice;  // what the server says unasked
  // It asks this session to make room, while that does nothing.
  static inline std::atomic<void (*)()> on_step_aside = nullptr;

 private:
  struct Pending {
    Incoming bulk;
    OnAnswer on_answer;  // none: somebody waits
    bool done = false;
    std::optional<Bytes> body;
  };
  using Clock = std::chrono::steady_clock;

  template <typename... Values>
  Number post(const HostBlock* bulk, Pending* pending, channel::Kind kind, const Values&... values) {
    const std::lock_guard lock{out_mutex_};
    const bool is_waited_for = pending && !pending->on_answer;  // by who flushes at once
    const Number number = pending ? expect(std::move(*pending)) : 0;
    put(number, bulk ? bulk->size() : 0, kind, values...);
    if (bulk) {
      send(bulk);
    } else if (!is_waited_for) {
      send_soon();
    }
    return number;
  }
  // With out_mutex_.
  template <typename... Values>
  void put(Number number, std::size_t bulk, channel::Kind kind, const Values&... values) {
    const std::size_t start = out_.size();
    last_ = left_ + start;
    channel::Head head{0, kind, crowd(), number, bulk, goes_in_blocks(bulk)};
    wire::Writer writer{out_};
    writer.add(&head, sizeof head);
    writer(values...);
    head.body = static_cast<std::uint32_t>(out_.size() - start - sizeof head);
    std::memcpy(out_.data() + start, &head.body, sizeof head.body);
  }
  bool goes_in_blocks(std::size_t bulk) const { return packer_ && bulk >= channel::kInBlocksFrom; }
  // Whether more than one thread uses the connection: then the server must not let one wait for another.
  channel::Crowd crowd() {
    thread_local const Connection* used = nullptr;
    if (used != this) {
      used = this;
      ++threads_;
    }
    return threads_ > 1 ? channel::Crowd::yes : channel::Crowd::no;
  }
  Number expect(Pending pending);
  std::optional<Bytes> wait(Number number);
  void send_soon();
  void send(const HostBlock* bulk);
  void send_parts(std::span<iovec> parts);
  void receive_one();
  void receive_bulk(const HostBlock& to, std::size_t size);
  void lose(const std::string& why);
  bool send_rest();  // false if somebody else has the lock for that
  void wait_for_room();
  // When the thread is to be woken, if it sleeps, to send what nobody else has sent until then, or to receive.
  enum class Wakes : std::uint8_t { never, late, soon, now };
  void wake_thread(Wakes when);
  void run();
  void fail_pending();
  void leave_to_thread();
  void has_waited();

  const std::unique_ptr<channel::Stream> stream_;
  const std::shared_ptr<channel::SharedMemory> memory_;
  const std::string server_;
  const channel::Descriptor timer_;  // wakes the thread
  const std::size_t batch_size_;
  std::atomic<Wakes> wakes_{Wakes::now};
  std::atomic<bool> lost_{false};
  std::atomic<std::uint64_t> round_trips_{0};

  std::mutex out_mutex_;  // guards what follows
  Bytes out_;
  Position left_ = 0;        // where out_ begins
  Position last_ = 0;        // where the last message does
  std::size_t threads_ = 0;  // that have sent something
  std::atomic<Clock::time_point> last_sent_;
  std::optional<channel::Packer> packer_;

  // Guards what follows. May be taken with out_mutex_ held, not the other way round.
  std::mutex in_mutex_;
  std::condition_variable changed_;
  std::map<Number, Pending> pending_;
  Number next_number_ = 1;
  bool receiving_ = false;
  std::size_t waiting_ = 0;
  std::size_t expected_ = 0;  // answers that nobody waits for

  channel::Input input_;  // of whoever is receiving
  std::thread thread_;
};

}  // namespace grus
