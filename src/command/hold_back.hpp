// Hold-back keeps commands above the seam: those that wait for an unfinished user event, everything that by order comes
// after such a command, and, while a move needs it, all commands. So executors only ever receive commands that can run.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "command/executor.hpp"
#include "command/wait_list.hpp"

namespace grus {

// How a command takes part in the order of its queue.
enum class Order : std::uint8_t {
  plain,
  all_before,              // waits for everything enqueued before it: a marker with an empty wait list
  all_before_and_barrier,  // and everything after it waits for it: a barrier with an empty wait list
  barrier,                 // a barrier with a wait list
};

// A command that is held back, whatever its kind.
struct Held : HeldCommand {
  Ref<Queue> queue;
  std::vector<Ref<Event>> waits;
  Ref<Event> event;  // every held command has one, so that others can wait for it
  Order order = Order::plain;
  std::uint64_t number = 0;  // in the order of enqueueing
  virtual cl_int submit(Executor& executor, const Placement& placement) = 0;
  // The session is about to move. Says of an object whether it goes on living in the memory it has.
  using Stays = std::function<bool(Memory&)>;
  virtual void session_moves(const Stays&) {}
};

class HoldBack {
 public:
  static HoldBack& instance();  // a forked child starts with one that holds nothing

  // Whether nothing is held back anywhere: the common case.
  static bool is_empty() { return any_.load(std::memory_order_acquire) == 0; }
  // Whether a command must be held back.
  static bool must_hold(const Queue& queue, Waits waits, Order order) {
    const auto is_below = [](const Event* event) { return event->place() == Event::Place::below; };
    if (is_empty() && std::all_of(waits.begin(), waits.end(), is_below)) [[likely]]
      return false;
    return instance().must_hold_now(queue, waits, order);
  }
  // From here on the command's event tells what becomes of it.
  void hold(std::unique_ptr<Held> command);

  // A user event was set, by the program; false if it was before.
  bool finish(Event& user_event, cl_int status);
  // A command that an executor has finished, which the session leaves.
  void leave_below(Event& event, cl_int status, std::unique_ptr<Event::Profile> profile);
  cl_int add_callback(Event& event, cl_int status, std::function<void(cl_int)> call);

  // All of these wait, and so must be called outside the gate.
  void wait_until_sent(const Queue& queue);  // everything held so far in that queue
  void wait_until_not_above(std::span<Event* const> events);

  void wait_while_everything();  // is held back
  // A session that moves or is suspended keeps so many commands and no more. (Those behind a user event don't count:
  // who enqueues them may be who sets it.)
  bool is_full() const { return any_.load(std::memory_order_relaxed) > kMostHeld; }
  void wait_for_room();
  // How often somebody wanted the device while everything was held back; and waits for the next time, or until nothing
  // is held back any more.
  std::uint64_t wanted();
  void wait_until_wanted(std::uint64_t since);

  // Holds everything back until the last of these ends; then what was held follows in order.
  class Everything {
   public:
    explicit Everything(HoldBack& hold_back);
    ~Everything();
    Everything(const Everything&) = delete;
    Everything& operator=(const Everything&) = delete;
    // Waits until the executors have finished what they were given; false at the deadline. Meanwhile it calls `look`
    // now and then, which may throw.
    [[nodiscard]] bool drain(
        std::chrono::steady_clock::time_point deadline, const std::function<void()>& look = [] {});

   private:
    HoldBack& hold_back_;
  };

  // Sends on only what it is allowed to, for as long as this lasts: then little is left for the device to finish when
  // everything is held back.
  class Slices {
   public:
    explicit Slices(HoldBack& hold_back);
    ~Slices();
    Slices(const Slices&) = delete;
    Slices& operator=(const Slices&) = delete;
    void allow(std::size_t commands);  // from here on, until the next time

   private:
    HoldBack& hold_back_;
  };

  void session_moves(const Held::Stays& stays);
  std::uint64_t held_so_far() const { return held_so_far_.load(std::memory_order_relaxed); }
  static void after_fork() { any_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kMostHeld = 1 << 18;

  using Sent = std::vector<std::unique_ptr<HeldCommand>>;  // to be destroyed when the mutex is free again

  bool must_hold_now(const Queue& queue, Waits waits, Order order);
  bool is_by_order_held(const Queue& queue, Waits waits, Order order) const;
  bool take_allowance();
  void catch_up();
  void note_want();
  void send_what_can_go(Sent& sent);
  bool send_from(Queue& queue, Sent& sent);
  void send(Held& held);
  void finish_above(Event& event, cl_int status);
  static std::function<void(cl_int)> posting(std::function<void(cl_int)> call);

  // Guards the held commands of all queues, and the place and callbacks of events that are above the seam.
  std::mutex mutex_;
  std::condition_variable changed_;       // something was sent or finished
  std::vector<Queue*> queues_with_held_;  // the held commands keep them alive
  std::uint64_t next_number_ = 1;
  std::uint32_t everything_ = 0;
  std::uint64_t wanted_ = 0;
  bool is_sliced_ = false;
  std::size_t allowed_ = 0;  // commands, if so
  // A thread sends what was held back, a part at a time; nobody else does meanwhile.
  bool is_catching_up_ = false;
  bool is_part_sent_ = false;
  std::chrono::steady_clock::time_point part_ends_;
  // Held commands, and 1 for each who holds everything or some. Static, so that the path of a call needs no instance.
  static inline constinit std::atomic<std::uint32_t> any_{0};
  std::atomic<std::uint64_t> held_so_far_{0};
};

}  // namespace grus
