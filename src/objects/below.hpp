// What objects need from below the seam: to say that they are gone. The Executor interface derives from it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "objects/id.hpp"

namespace grus {

class HostMemory;

enum class ObjectType : std::uint8_t { device, context, queue, memory, sampler, program, kernel, event };

class BelowSeam {
 public:
  virtual void free(ObjectType type, ObjectId id) noexcept = 0;
  // Called, on a thread of Grus's own, when the vendor is done with the object.
  virtual void when_memory_is_gone(ObjectId memory, std::function<void()> call) = 0;
  // Keeps memory, which commands may read and write, until everything that was given so far is finished.
  virtual void keep_while_busy(std::shared_ptr<HostMemory> memory) = 0;

  // Threads that are in one of its functions outside the gate, where the session may move away from it meanwhile.
  std::atomic<std::uint32_t> pins{0};

 protected:
  ~BelowSeam() = default;
};

}  // namespace grus
