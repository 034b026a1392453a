// Host memory that executors know of, so that they copy from and to it as fast as they can.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "command/executor.hpp"

namespace grus::memory {

class RegisteredMemory {
 public:
  // Where one can't, it is ordinary memory for that one.
  RegisteredMemory(Context& context, std::shared_ptr<HostMemory> memory, std::initializer_list<Executor*> executors);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  std::byte* data() const { return memory_->data(); }
  std::size_t size() const { return memory_->size(); }

 private:
  const std::shared_ptr<HostMemory> memory_;
  Ref<Memory> region_;  // what executors know it by
  std::vector<Executor*> known_to_;
};

}  // namespace grus::memory
