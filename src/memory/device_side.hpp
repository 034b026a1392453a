// What a device with memory of its own does for a copy: it fingerprints pages, tells which have changed since they were
// sent, and puts those together, so that little goes to the host. All of it is done with commands, as a program would
// do it, and so behind a server too.
#pragma once

#include <functional>
#include <memory>

#include "command/executor.hpp"
#include "memory/copy.hpp"

namespace grus::memory {

// What was sent of one buffer, known to the source's device.
struct DeviceTable {
  Ref<Memory> fingerprints;
};

class DeviceSide {
 public:
  // Null if the device can't: then the host does it.
  static std::unique_ptr<DeviceSide> make(Executor& executor, Context& context, const Queue& queue);
  ~DeviceSide();
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;

  // Nothing if there is no memory for it.
  std::unique_ptr<DeviceTable> make_table(std::size_t size);
  void free(DeviceTable& table) noexcept;

  // As copy_buffer. While the program runs, what is fingerprinted is what is sent: a copy on the device. `there` may be
  // null: then the host writes pages one run after the other.
  enum class Source : std::uint8_t { runs, rests };
  void copy(Executor& to, DeviceSide* there, ObjectId buffer, std::size_t size, DeviceTable& table, Source source,
            const OnCopied& on_copied);

 private:
  DeviceSide(Executor& executor, Context& context, ObjectId queue);
  Ref<Memory> make_buffer(std::size_t size);
  void make_pinned();
  Ref<Kernel> make_kernel(const char* name);
  void launch(const Kernel& kernel, std::vector<Argument> arguments, std::size_t groups);
  Argument memory_argument(ObjectId memory);
  Argument value_argument(std::uint64_t value);
  void read(ObjectId memory, Range range, void* to);
  void write(ObjectId memory, Range range, const void* from);
  std::vector<cl_uint> find_changed(ObjectId from, std::size_t first_there, DeviceTable& table, std::size_t first,
                                    std::size_t count);
  void send(Executor& to, DeviceSide* there, ObjectId from, std::size_t first_there, ObjectId buffer, std::size_t first,
            std::span<const cl_uint> pages);
  void send_whole(Executor& to, ObjectId from, std::size_t offset_there, ObjectId buffer, Range range);

  Executor& executor_;
  Context& context_;
  const ObjectId queue_;
  Ref<Program> program_;
  Ref<Kernel> fingerprint_;
  Ref<Kernel> gather_;
  Ref<Kernel> scatter_;
  Ref<Memory> staging_;   // a copy of what is looked at
  Ref<Memory> gathered_;  // pages that changed
  Ref<Memory> changed_;   // how many, and which
  Ref<Memory> indices_;
  Ref<Memory> pinned_;  // host memory that the driver knows
  std::uint64_t stamp_ = 1;
};

}  // namespace grus::memory
