#include "executor/copy_threads.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/log.hpp"
#include "base/thread.hpp"

namespace grus {
namespace {

constexpr unsigned kMostThreads = 8;
constexpr std::size_t kLeastPiece = std::size_t{16} << 10;
constexpr std::size_t kMostPiece = std::size_t{256} << 10;
constexpr std::size_t kPage = 4096;
// Longer than the device takes for a chunk of a staged copy: in the middle of one, threads don't fall asleep.
constexpr auto kLookOut = std::chrono::microseconds{200};
constexpr int kTurnsBeforeSleep = 2000;  // some tens of microseconds: as long as a piece takes

void relax() {
#ifdef __SSE2__
  _mm_pause();
#endif
}

void copy_streaming(std::byte* to, const std::byte* from, std::size_t size) {
#ifdef __SSE2__
  constexpr std::size_t kLine = 64;
  const std::size_t head = std::min(size, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  const std::size_t lines_end = head + (size - head) / kLine * kLine;
  for (std::size_t at = head; at < lines_end; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + lines_end, from + lines_end, size - lines_end);
  _mm_sfence();  // streaming stores are not ordered by the lock that says they are done
#else
  std::memcpy(to, from, size);
#endif
}

}  // namespace

CopyThreads::CopyThreads() {
  if (sched_getaffinity(0, sizeof allowed_, &allowed_) == 0) {
    cores_ = static_cast<unsigned>(CPU_COUNT(&allowed_));
  } else {  // more cores than the set has room for
    CPU_ZERO(&allowed_);
    cores_ = std::max(1U, std::thread::hardware_concurrency());
  }
  most_threads_ = std::clamp(cores_ / 2, 1U, kMostThreads);
}

CopyThreads::CopyThreads(unsigned threads) : CopyThreads{} { most_threads_ = threads; }

void CopyThreads::start(Part& part, void* to, const void* from, std::size_t size, Stores stores) {
  part.to_ = static_cast<std::byte*>(to);
  part.from_ = static_cast<const std::byte*>(from);
  part.size_ = size;
  part.stores_ = stores;
  part.taken_.store(0, std::memory_order_relaxed);
  part.next_ = nullptr;
  // Two pieces for each thread, so that one that is late doesn't hold up the rest for long.
  const std::size_t share = size / (2 * (std::size_t{most_threads_} + 1));
  part.piece_ = std::clamp((share + kPage - 1) / kPage * kPage, kLeastPiece, kMostPiece);
  const std::size_t pieces = (size + part.piece_ - 1) / part.piece_;
  std::size_t wanted = 0;
  {
    const std::lock_guard lock{mutex_};
    if (!running_) start_threads();
    Part** last = &first_;
    while (*last) last = &(*last)->next_;
    *last = &part;
    started_.fetch_add(1, std::memory_order_release);
    wanted = std::min<std::size_t>(asleep_, pieces);
  }
  for (; wanted > 0; --wanted) work_.notify_one();
}

void CopyThreads::finish(Part& part) {
  copy_pieces(part);
  for (int turn = 0; turn < kTurnsBeforeSleep && part.copiers_.load(std::memory_order_relaxed) != 0; ++turn) relax();
  std::unique_lock lock{mutex_};
  Part** link = &first_;
  while (*link != &part) link = &(*link)->next_;
  *link = part.next_;
  copied_.wait(lock, [&] { return part.copiers_.load(std::memory_order_relaxed) == 0; });
}

void CopyThreads::start_threads() {
  running_ = true;
  for (unsigned number = 0; number < most_threads_; ++number) {
    try {
      start_thread("grus-copy", [this] { run(); }).detach();
    } catch (const std::system_error& error) {
      log::warn("copy", "only {} of {} copy threads can be started: {}", number, most_threads_, error.what());
      return;
    }
  }
}

void CopyThreads::run() {
  // The program's memory may be of the kind that its own handler fills in when it is touched.
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  sigaddset(&faults, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
  if (CPU_COUNT(&allowed_) != 0) sched_setaffinity(0, sizeof allowed_, &allowed_);

  std::unique_lock lock{mutex_};
  for (;;) {
    if (Part* part = part_with_pieces()) {
      part->copiers_.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      copy_pieces(*part);
      lock.lock();
      if (part->copiers_.fetch_sub(1, std::memory_order_relaxed) == 1) copied_.notify_all();
      continue;
    }
    const unsigned seen = started_.load(std::memory_order_relaxed);
    lock.unlock();
    const bool found = look_out(seen);
    lock.lock();
    if (found) continue;
    ++asleep_;
    work_.wait(lock, [this] { return part_with_pieces() != nullptr; });
    --asleep_;
  }
}

// Whether another part was started while looking.
bool CopyThreads::look_out(unsigned seen) const {
  constexpr int kTurnsPerGlance = 64;  // at the clock
  const auto until = std::chrono::steady_clock::now() + kLookOut;
  do {
    for (int turn = 0; turn < kTurnsPerGlance; ++turn) {
      if (started_.load(std::memory_order_relaxed) != seen) return true;
      if (busy_.load(std::memory_order_relaxed) == 0) return false;
      relax();
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

CopyThreads::Part* CopyThreads::part_with_pieces() const {
  for (Part* part = first_; part; part = part->next_) {
    if (part->taken_.load(std::memory_order_relaxed) < part->size_) return part;
  }
  return nullptr;
}

void CopyThreads::copy_pieces(Part& part) {
  for (;;) {
    const std::size_t at = part.taken_.fetch_add(part.piece_, std::memory_order_relaxed);
    if (at >= part.size_) return;
    const std::size_t size = std::min(part.piece_, part.size_ - at);
    if (part.stores_ == Stores::streaming) {
      copy_streaming(part.to_ + at, part.from_ + at, size);
    } else {
      std::memcpy(part.to_ + at, part.from_ + at, size);
    }
  }
}

}  // namespace grus
