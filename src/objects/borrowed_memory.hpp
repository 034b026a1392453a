// The program's own memory (CL_MEM_USE_HOST_PTR), while a move reads it. The program may give it back to the system as
// soon as its object is released, so a release waits for that.
#pragma once

#include "objects/memory.hpp"

namespace grus {

class BorrowedMemory {
 public:
  explicit BorrowedMemory(const Memory& root) : id_{root.id().value()} { take(); }
  ~BorrowedMemory() { give_back(); }
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;

  // Whoever takes it looks whether it is released, and whoever releases it looks whether it is taken.
  void take() { g_borrowed.store(id_, std::memory_order_seq_cst); }
  void give_back() {
    g_borrowed.store(0, std::memory_order_seq_cst);
    g_borrowed.notify_all();
  }

  static bool is_taken(ObjectId root) { return g_borrowed.load(std::memory_order_seq_cst) == root.value(); }
  static void wait_for(ObjectId root) { g_borrowed.wait(root.value(), std::memory_order_seq_cst); }

 private:
  static inline constinit std::atomic<std::uint64_t> g_borrowed{0};  // an object's id; only one move is under way
  const std::uint64_t id_;
};

}  // namespace grus
