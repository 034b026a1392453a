// Where processes share a device, a command waits for its turn: until this process has the device, and until so little
// is under way that it could be given back soon. How long commands take is learned from what was waited for.
#pragma once

#include <CL/cl.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace grus {

// What a command is, as far as its duration goes.
struct Work {
  static constexpr std::uint32_t kTransfer = 0;
  std::uint32_t kind = kTransfer;  // or a kernel's
  std::uint64_t amount = 0;        // bytes, or work-items
  std::uint64_t values = 0;        // tells whether a kernel's arguments are those of before
  bool is_piece = false;           // of a kernel, which has more of them

  static std::uint32_t kind_of_kernel(std::uint64_t program, std::string_view name);
};

class Turn {
 public:
  // From before a command is given to the driver until the driver has it.
  class Pass {
   public:
    Pass(Turn* turn, cl_command_queue queue, const Work& work, std::uint64_t event) : turn_{turn}, event_{event} {
      if (turn_) turn_->enter(queue, work);
    }
    ~Pass() {
      if (turn_) turn_->leave(event_);
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Turn* const turn_;
    const std::uint64_t event_;  // of the command; 0: none, or others may end later that were sent before
  };

  Turn() = default;
  virtual ~Turn() = default;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Whether a command would be given to the device at once; or waits until it would.
  bool has_room();
  void wait_for_room();
  std::uint64_t sent();  // commands, so far

  // How many of a command's parts are best sent at once, so that the device can be given back soon: all of them if it
  // is short, few if it isn't known, or has other arguments than those it is known for. And, after some of them were,
  // how many next.
  std::size_t first_parts(const Work& whole, std::size_t parts);
  std::size_t next_parts(const Work& sent, std::size_t parts);
  // Of a whole of `all` parts, where fewer were wanted but so many have to be, or nobody else wants the device: more of
  // them, if more take hardly longer.
  std::size_t widened(const Work& whole, std::size_t wanted, std::size_t parts, std::size_t all);
  // What it takes is only seen piece by piece: it had so many times the parts of this one.
  void note_whole(const Work& whole, const Work& piece, double times);

  // Somebody has waited, since then, for all commands of a queue, when so many had been sent; or for one by its event.
  using Clock = std::chrono::steady_clock;
  void saw_end_of(cl_command_queue queue, Clock::time_point since, std::uint64_t sent);
  void saw_end_of_event(std::uint64_t event, Clock::time_point since);

  // Before a queue goes, whose commands are done: vendors' events need their queue.
  void forget(cl_command_queue queue);

 protected:
  // Returns when the device is this process's, and open() was called.
  virtual void take() = 0;
  // Whether others wait for it, and whether it is to be given back as soon as what was sent is done.
  virtual bool is_wanted() const = 0;
  virtual bool is_recalled() const = 0;
  void open();
  bool is_open();
  // Nothing more is given to the device from here on; returns when it has done what it was given.
  void stop();
  // Commands that were given to the device so far, after it has done them.
  std::uint64_t wait_for_sent();
  bool is_idle();

 private:
  static constexpr std::size_t kKinds = 256;
  static constexpr std::size_t kAmounts = 40;  // powers of two

  // What is known of commands of one kind and amount.
  struct Known {
    float cost = 0;             // ns; 0: nothing
    std::uint32_t most = 1;     // that a chunk may have of them: grows while they take as long as they did before
    std::uint32_t changes = 0;  // of its arguments, that made it no longer
    std::uint64_t values = 0;
  };
  // A marker behind commands of a queue.
  struct Mark {
    cl_command_queue queue = nullptr;
    cl_event event = nullptr;
    int waiters = 0;
  };
  // Commands that are waited for together.
  struct Chunk {
    std::vector<std::shared_ptr<Mark>> marks;
    std::vector<cl_command_queue> queues;  // that have no marker yet
    struct Kind {
      Known* known;
      std::uint32_t count;
    };
    std::vector<Kind> kinds;  // of its commands; not all if they are of many
    bool has_most = false;    // of one kind, or a piece
    bool is_trial = false;    // of one of them nobody knows yet whether it takes as long again
    double cost = 0;          // ns, as expected
    Clock::time_point began{};
  };
  using Lock = std::unique_lock<std::mutex>;

  void enter(cl_command_queue queue, const Work& work);
  void leave(std::uint64_t event);
  bool is_all_of(cl_command_queue queue) const;
  void saw_end(Lock& lock, Clock::time_point since);
  bool is_full() const;
  static bool is_done(const Chunk& chunk);
  void mark();
  void wait_for_first(Lock& lock);
  void wait_for_all(Lock& lock);
  enum class Ended : std::uint8_t { before, waited_for, where_sent };
  void end_first(Lock& lock, Ended how);
  void learn(const Chunk& chunk, Clock::time_point ended, Ended how);
  Known& known_of(const Work& work);
  static bool is_new(const Known& known, const Work& work);  // or has other arguments than those it is known for
  bool is_current_full() const;
  double piece_cost() const;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool is_open_ = false;
  int inside_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t last_event_ = 0;  // of the last command that was sent
  cl_command_queue last_queue_ = nullptr;
  Chunk current_;
  std::deque<std::shared_ptr<Chunk>> under_way_;
  Clock::time_point last_ended_{};                // of a chunk
  Clock::time_point last_wanted_ = Clock::now();  // by others
  bool is_last_known_ = true;                     // or only that it had ended by then
  std::array<std::array<Known, kAmounts>, kKinds> known_{};
};

}  // namespace grus
