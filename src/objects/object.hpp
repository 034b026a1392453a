// What every object has: the ICD dispatch pointer first, whether it is live, who holds it, and its id.
#pragma once

#include <CL/cl_icd.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

#include "base/reserved_array.hpp"
#include "base/sanitizer.hpp"
#include "base/spin_lock.hpp"
#include "objects/id.hpp"

namespace grus {

// Set once by the API before any object exists; objects only carry it for the ICD loader.
extern const cl_icd_dispatch* g_dispatch;
// Which session of this process is current: 1, and one more in each forked child, where inherited handles are invalid.
extern std::atomic<std::uint32_t> g_session_number;

class Object {
 public:
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  ObjectId id() const { return id_; }
  bool is_live() const {
    return state_.load(std::memory_order_acquire) == g_session_number.load(std::memory_order_relaxed);
  }

  // The program's references, as clRetain* and clRelease* count them. Objects that depend on this one hold their own,
  // so a context outlives the program's last release for as long as a queue of it lives, and stays valid until then.
  std::uint32_t program_references() const { return program_references_.load(std::memory_order_relaxed); }
  // The first of them brings the common reference: the program may have none when a query hands the object out again,
  // as a queue's context.
  void program_retain() {
    retain();
    if (program_references_.fetch_add(1, std::memory_order_relaxed) != 0)
      references_.fetch_sub(1, std::memory_order_relaxed);  // there is one already, and it stays while ours does
  }

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  std::uint32_t references() const { return references_.load(std::memory_order_seq_cst); }

 protected:
  Object() = default;
  ~Object() = default;

 private:
  template <typename T>
  friend class Slab;
  template <typename T>
  friend void release(T*);
  template <typename T>
  friend bool program_release(T*);

  const cl_icd_dispatch* dispatch_ = g_dispatch;  // must stay first: the ICD loader reads it
  std::atomic<std::uint32_t> state_{0};           // the number of the session it is live in; 0: not live
  std::atomic<std::uint32_t> program_references_{1};
  std::atomic<std::uint32_t> references_{1};  // everybody's; all of the program's count as one
  ObjectId id_;
};

// Memory for all objects of one type. Slots are reused late, so that a stale handle is noticed rather than mistaken for
// a new object.
template <typename T>
class Slab {
 public:
  constexpr Slab() = default;

  template <typename... Args>
  T* create(Args&&... args) {
    const std::uint32_t slot = take_slot();
    const std::uint64_t generation = next_generation_.fetch_add(1, std::memory_order_relaxed);
    sanitizer::allow(slots_.at(slot), sizeof(T));
    T* object = new (slots_.at(slot)) T(std::forward<Args>(args)...);
    object->id_ = ObjectId{generation, slot};
    object->state_.store(g_session_number.load(std::memory_order_relaxed), std::memory_order_release);
    live_.fetch_add(1, std::memory_order_relaxed);
    return object;
  }

  void destroy(T* object) {
    const std::uint32_t slot = object->id_.slot();
    object->state_.store(0, std::memory_order_release);
    object->~T();
    // A handle that was released may be read, but no further than to see that it was.
    sanitizer::forbid(reinterpret_cast<std::byte*>(object) + sizeof(Object), sizeof(T) - sizeof(Object));
    live_.fetch_sub(1, std::memory_order_relaxed);
    const std::lock_guard lock{lock_};
    if (free_count_++ == 0) {
      first_free_ = slot;
    } else {
      *next_free_.at(last_free_) = slot;
    }
    last_free_ = slot;
  }

  // The object behind a handle of the program's, or null.
  T* live(const void* handle) const {
    if (!slots_.has(handle)) return nullptr;
    T* object = static_cast<T*>(const_cast<void*>(handle));
    if (!object->is_live()) return nullptr;
    if (!object) __builtin_unreachable();  // a slot is never at address 0
    return object;
  }

  // The object with an id that the caller knows to be live.
  T* at(ObjectId id) const { return slots_.at(id.slot()); }
  T* find(ObjectId id) const {
    if (id.slot() >= used_.load(std::memory_order_acquire)) return nullptr;
    T* object = slots_.at(id.slot());
    return object->is_live() && object->id() == id ? object : nullptr;
  }

  // To be called with the gate closed: nobody makes or destroys objects then.
  void each_live(auto visit) const {
    const std::uint32_t used = used_.load(std::memory_order_acquire);
    for (std::uint32_t slot = 0; slot < used; ++slot) {
      if (T* const object = slots_.at(slot); object->is_live()) visit(*object);
    }
  }

  std::uint64_t live_count() const { return live_.load(std::memory_order_relaxed); }
  std::uint64_t created_count() const { return next_generation_.load(std::memory_order_relaxed) - 1; }

 private:
  static constexpr std::size_t kReuseAfter = 1024;

  std::uint32_t take_slot() {
    const std::lock_guard lock{lock_};
    if (free_count_ > kReuseAfter || (free_count_ != 0 && used_.load(std::memory_order_relaxed) == slots_.capacity())) {
      --free_count_;
      return std::exchange(first_free_, *next_free_.at(first_free_));
    }
    const std::uint32_t used = used_.load(std::memory_order_relaxed);
    if (used == slots_.capacity()) {
      if (used != 0) throw std::bad_alloc{};
      slots_.reserve();
      next_free_.reserve();
      if (slots_.capacity() == 0 || next_free_.capacity() < slots_.capacity()) throw std::bad_alloc{};
    }
    used_.store(used + 1, std::memory_order_release);
    return used;
  }

  ReservedArray<T, std::bit_ceil(sizeof(T))> slots_;
  SpinLock lock_;  // guards the list of free slots and the growth of used_
  // The list, oldest first: for each free slot but the last, the next one.
  ReservedArray<std::uint32_t> next_free_;
  std::uint32_t first_free_ = 0;
  std::uint32_t last_free_ = 0;
  std::uint32_t free_count_ = 0;
  std::atomic<std::uint32_t> used_{0};
  std::atomic<std::uint64_t> next_generation_{1};
  std::atomic<std::uint64_t> live_{0};
};

// One slab per type. They have no destructors: programs call OpenCL from destructors that run at exit.
template <typename T>
inline constinit Slab<T> g_slab;

template <typename T>
Slab<T>& slab() {
  return g_slab<T>;
}

template <typename T>
void release(T* object) {
  if (object->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) slab<T>().destroy(object);
}

// False if the program holds no reference: releasing once too often is a mistake of the program's and changes nothing.
template <typename T>
bool program_release(T* object) {
  auto count = object->program_references_.load(std::memory_order_relaxed);
  do {
    if (count == 0) return false;
  } while (!object->program_references_.compare_exchange_weak(count, count - 1, std::memory_order_acq_rel));
  if (count == 1) release(object);
  return true;
}

// A reference held by Grus itself.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_{object} {
    if (object_) object_->retain();
  }
  Ref(const Ref& other) : Ref{other.object_} {}
  Ref(Ref&& other) noexcept : object_{std::exchange(other.object_, nullptr)} {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) release(object_);
  }
  // Takes over the reference that create() made.
  static Ref adopt(T* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  // Gives the reference to the program: what a create call returns.
  T* hand_out() { return std::exchange(object_, nullptr); }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

}  // namespace grus
