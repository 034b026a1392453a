// What copies go through: host memory that both sides know, and a thread that writes at the destination while the
// source is read.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "command/executor.hpp"

namespace grus::memory {

class Conveyor {
 public:
  enum class Overlap : std::uint8_t { off, on };
  Conveyor(std::size_t slot_size, Overlap overlap) : Conveyor{memory_in_pages(kSlots * slot_size), overlap} {}
  // With memory that both sides know, if they can. Throws std::bad_alloc.
  Conveyor(Executor& from, Executor& to, Context& context, std::size_t slot_size, Overlap overlap);
  ~Conveyor();
  Conveyor(const Conveyor&) = delete;
  Conveyor& operator=(const Conveyor&) = delete;

  std::size_t slot_size() const { return slot_size_; }
  // Memory to read into, the same until it is handed over. Waits until what it held before is written. As the other
  // functions, throws what a write threw.
  std::byte* take();
  // `write` is called in its turn, and is the last to use what was taken.
  void hand_over(std::function<void()> write);
  void finish();  // waits until everything is written

 private:
  static constexpr std::size_t kSlots = 4;

  Conveyor(std::shared_ptr<HostMemory> memory, Overlap overlap);
  void run();
  void check() const;

  const std::shared_ptr<HostMemory> memory_;
  const std::size_t slot_size_;
  Ref<Memory> region_;  // what executors know it by
  std::vector<Executor*> known_to_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> writes_;
  std::exception_ptr failure_;
  std::size_t handed_over_ = 0;
  std::size_t written_ = 0;
  bool is_over_ = false;
  std::thread thread_;  // none if nothing is to overlap
};

}  // namespace grus::memory
