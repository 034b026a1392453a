// What copies go through: host memory that both sides know, and a thread that writes at the destination while the
// source is read.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "memory/registered.hpp"

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
  // `write` is called in its turn; what was taken isn't used any more when `finish` returns, which comes later if there
  // is more to write.
  struct Job {
    std::function<void()> write;
    std::function<void()> finish = [] {};
  };
  using Number = std::size_t;
  Number hand_over(Job job);
  bool has_room();  // for a job that takes long: none waits behind the one under way
  void wait_for(Number number);
  void finish();  // waits for all

 private:
  static constexpr std::size_t kSlots = 8;

  Conveyor(std::shared_ptr<HostMemory> memory, Overlap overlap);
  void run();
  void try_to(const std::function<void()>& act, std::unique_lock<std::mutex>& lock);
  void check() const;

  const std::shared_ptr<HostMemory> memory_;
  const std::size_t slot_size_;
  std::optional<RegisteredMemory> registered_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // to be written
  std::exception_ptr failure_;
  Number handed_over_ = 0;
  Number written_ = 0;
  bool is_over_ = false;
  std::thread thread_;  // none if nothing is to overlap
};

}  // namespace grus::memory
