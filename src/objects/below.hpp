// The one thing objects need from below the seam: to say that they are gone. The Executor interface derives from it.
#pragma once

#include "objects/id.hpp"

namespace grus {

enum class ObjectType : std::uint8_t { device, context, queue, memory, sampler, program, kernel, event };

class BelowSeam {
 public:
  virtual void free(ObjectType type, ObjectId id) noexcept = 0;

 protected:
  ~BelowSeam() = default;
};

}  // namespace grus
