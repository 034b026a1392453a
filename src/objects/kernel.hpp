#pragma once

#include <cstring>
#include <memory>
#include <span>

#include "objects/kernel_facts.hpp"
#include "objects/memory.hpp"
#include "objects/program.hpp"
#include "objects/sampler.hpp"

namespace grus {

// The bytes of a value argument; nearly all fit inside.
class ArgumentValue {
 public:
  static constexpr std::size_t kInside = 32;

  ArgumentValue() = default;
  ArgumentValue(const ArgumentValue& other) { assign(other.data(), other.size_); }
  ArgumentValue& operator=(const ArgumentValue& other) {
    if (this != &other) assign(other.data(), other.size_);
    return *this;
  }

  const void* data() const { return size_ <= kInside ? inside_ : outside_.get(); }
  std::size_t size() const { return size_; }
  bool equals(const void* bytes, std::size_t size) const {
    return size == size_ && std::memcmp(data(), bytes, size) == 0;
  }
  // Takes a new value of the size it has, if that is one of the two that matter; says whether it is new. No calls.
  enum class Quick : std::uint8_t { no, same, changed };
  Quick assign_quickly(const void* bytes, std::size_t size) {
    if (size != size_) return Quick::no;
    if (size == sizeof(std::uint32_t)) return assign_as<std::uint32_t>(bytes);
    if (size == sizeof(std::uint64_t)) return assign_as<std::uint64_t>(bytes);
    return Quick::no;
  }
  void assign(const void* bytes, std::size_t size) {
    if (size > kInside) {
      if (size != size_) outside_ = std::make_unique<std::byte[]>(size);
      std::memcpy(outside_.get(), bytes, size);
    } else {
      std::memcpy(inside_, bytes, size);
    }
    size_ = size;
  }

 private:
  template <typename T>
  Quick assign_as(const void* bytes) {
    T before;
    T after;
    std::memcpy(&before, inside_, sizeof(T));
    std::memcpy(&after, bytes, sizeof(T));
    if (before == after) return Quick::same;
    std::memcpy(inside_, &after, sizeof(T));
    return Quick::changed;
  }

  std::size_t size_ = 0;
  alignas(8) std::byte inside_[kInside];
  std::unique_ptr<std::byte[]> outside_;
};

// One argument as the program set it. The stamp changes whenever the value does, so that below the seam a launch sets
// only what changed.
struct Argument {
  enum class Holds : std::uint8_t { nothing, memory, sampler, local, value };
  Holds holds = Holds::nothing;
  ArgumentKind kind = ArgumentKind::unknown;  // as the kernel's facts say; here for the path of a call
  std::uint64_t stamp = 0;
  ObjectId object;  // memory, sampler; no id for a null buffer
  std::size_t local_size = 0;
  ArgumentValue value;
};

class Kernel : public Object {
 public:
  Kernel(Program& program_, std::shared_ptr<KernelFacts> facts_)
      : program{&program_},
        facts{std::move(facts_)},
        argument_memory{std::make_unique<Argument[]>(facts->arguments.size())},
        arguments{argument_memory.get(), facts->arguments.size()},
        unset{arguments.size()} {
    for (std::size_t index = 0; index < arguments.size(); ++index) arguments[index].kind = facts->arguments[index].kind;
    program->kernels.fetch_add(1, std::memory_order_relaxed);
  }
  ~Kernel() {
    if (created) program->context->below.load(std::memory_order_relaxed)->free(ObjectType::kernel, id());
    detach();
  }
  // The program's last reference is gone. Launches that are still held back don't count: they have their own build.
  void detach() {
    if (attached_.exchange(false, std::memory_order_relaxed)) program->kernels.fetch_sub(1, std::memory_order_relaxed);
  }

  const Ref<Program> program;
  const std::shared_ptr<KernelFacts> facts;
  std::shared_ptr<const Recipe> recipe;  // of the build that it is from
  bool created = false;                  // below the seam
  // The OpenCL specification lets no two threads use a kernel's arguments at a time, so they have no lock.
  const std::unique_ptr<Argument[]> argument_memory;
  const std::span<Argument> arguments;
  std::size_t unset;           // how many arguments have no value yet
  std::size_t local_size = 0;  // of all local arguments together, at most
  std::uint64_t next_stamp = 1;

 private:
  std::atomic<bool> attached_{true};
};

}  // namespace grus
