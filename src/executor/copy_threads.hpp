// A few threads that copy memory together: one alone can't keep a fast link to a device busy. They start with the first
// copy, sleep while there is none, and live as long as the process does.
#pragma once

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace grus {

class CopyThreads {
 public:
  // Streaming stores leave the destination out of the caches: better for what is larger than they are.
  enum class Stores { plain, streaming };
  // For each thread they are a quarter faster than plain ones. But of large writes to a device what waits for its
  // transfer stays in the cache with plain ones, which leaves more of the memory's speed: 48 instead of 40 GB/s.
  static constexpr Stores stores_of_writes(std::size_t size) {
    return size < (std::size_t{64} << 20U) ? Stores::streaming : Stores::plain;
  }
  static constexpr unsigned kLeastCores = 4;  // with fewer, one thread is as fast

  // A stretch of memory that is copied, in pieces, by whichever threads are free.
  class Part {
   public:
    Part() = default;
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    friend class CopyThreads;
    std::byte* to_ = nullptr;
    const std::byte* from_ = nullptr;
    std::size_t size_ = 0;
    std::size_t piece_ = 0;
    Stores stores_ = Stores::plain;
    std::atomic<std::size_t> taken_{0};  // where the next piece starts
    std::atomic<unsigned> copiers_{0};   // threads at it, its owner not counted; changed under CopyThreads::mutex_
    Part* next_ = nullptr;               // guarded by CopyThreads::mutex_
  };

  // For as long as it lives, threads that run out of pieces look out for more for a moment before they sleep: waking
  // them takes about as long as a piece.
  class Busy {
   public:
    explicit Busy(CopyThreads& threads) : threads_{threads} { threads_.busy_.fetch_add(1, std::memory_order_relaxed); }
    ~Busy() { threads_.busy_.fetch_sub(1, std::memory_order_relaxed); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    CopyThreads& threads_;
  };

  // As many as the cores that the calling thread may use are worth.
  CopyThreads();
  explicit CopyThreads(unsigned threads);
  CopyThreads(const CopyThreads&) = delete;
  CopyThreads& operator=(const CopyThreads&) = delete;
  ~CopyThreads() = default;  // only before the first copy: the threads never end

  unsigned cores() const { return cores_; }

  // Returns at once. Every part that is started must be finished, and stay in place until then.
  void start(Part& part, void* to, const void* from, std::size_t size, Stores stores);
  // Takes part in the copying and returns when it is done.
  void finish(Part& part);

 private:
  void start_threads();
  void run();
  bool look_out(unsigned seen) const;
  Part* part_with_pieces() const;
  static void copy_pieces(Part& part);

  cpu_set_t allowed_{};  // where the threads may run, whatever the thread that happens to start them is bound to
  unsigned cores_ = 1;
  unsigned most_threads_ = 1;
  std::atomic<unsigned> busy_{0};     // Busy objects
  std::atomic<unsigned> started_{0};  // parts so far; changed under mutex_

  std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::condition_variable copied_;
  Part* first_ = nullptr;  // parts in the order they were started
  unsigned asleep_ = 0;
  bool running_ = false;
};

}  // namespace grus
