// What a device with memory of its own does for a copy: it fingerprints pages, tells which have changed since they were
// sent, and puts those together, so that little goes to the host. All of it is done with commands, as a program would
// do it, and so behind a server too.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "command/executor.hpp"
#include "memory/copy.hpp"
#include "memory/registered.hpp"

namespace grus::memory {

// Of the conveyor that a device's side copies by.
inline constexpr std::size_t kSlotSize = std::size_t{16} << 20;

// What was sent of one buffer, known to the source's device.
struct DeviceTable {
  Ref<Memory> fingerprints;
};

class DeviceSide {
 public:
  enum class Role : std::uint8_t { source, destination };
  // Null if the device can't: then the host does it.
  static std::unique_ptr<DeviceSide> make(Executor& executor, Context& context, Role role);
  ~DeviceSide();
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;

  // Nothing if there is no memory for it.
  std::unique_ptr<DeviceTable> make_table(std::size_t size);
  void free(DeviceTable& table) noexcept;

  // As copy_buffer; the last parts of it are only sent with the next, or by finish. While the program runs, what is
  // fingerprinted is what is sent: a copy on the device. `there` may be null: then the host writes pages one run after
  // the other. Between servers pages go past this process, but for single ones where `there` is null.
  enum class Source : std::uint8_t { runs, rests };
  struct Buffer {
    ObjectId id;
    std::size_t size = 0;
    DeviceTable* table = nullptr;
    Source source = Source::runs;
  };
  // The range begins with a page, and ends with one or with the buffer.
  void copy(const Route& route, DeviceSide* there, const Buffer& buffer, Range range, const OnCopied& on_copied);
  void finish(const Route& route, DeviceSide* there, const OnCopied& on_copied);

 private:
  // They take turns. A kernel may have to wait for one of the program's, so several wait at a time.
  struct Lane {
    Ref<Queue> queue;
    Ref<Memory> staging;        // a copy of what is looked at
    Ref<Memory> changed;        // how many pages, and which
    std::byte* list = nullptr;  // the first of that, on the host
    Ref<Memory> gathered;       // pages that changed
    Ref<Memory> indices;
  };
  // Numbers of pages, counted from the first of a look, that are new or have changed.
  struct Changed {
    std::vector<cl_uint> pages;
    std::vector<cl_uint> zero;  // that hold only zeroes now
  };
  // Pages that a lane looks at.
  struct Look {
    const Lane* lane = nullptr;
    Buffer buffer;
    std::size_t first = 0;
    std::size_t count = 0;
    ObjectId from;  // where they are now
    std::size_t first_there = 0;
    std::optional<Changed> changed = std::nullopt;  // once that is known
  };

  DeviceSide(Executor& executor, Context& context);
  void set_up(Role role);
  Ref<Memory> make_buffer(std::size_t size);
  Ref<Queue> make_queue();
  Ref<Kernel> make_kernel(const char* name);
  void launch(const Lane& lane, const Kernel& kernel, std::vector<Argument> arguments, std::size_t groups);
  Argument memory_argument(ObjectId memory);
  Argument value_argument(std::uint64_t value);
  void read(const Lane& lane, ObjectId memory, Range range, void* to, Blocking blocking = Blocking::yes);
  void write(const Lane& lane, ObjectId memory, Range range, const void* from, Blocking blocking);
  void clear(const Lane& lane, ObjectId memory, std::size_t size);
  std::size_t lanes_for(Role role) const;
  Look begin(const Lane& lane, const Buffer& buffer, std::size_t first, std::size_t count);
  Changed changed_pages(const Look& look);
  void end(Look& look);
  std::span<const cl_uint> gather(const Look& look, std::size_t done);
  void send_first(const Route& route, DeviceSide* there, const OnCopied& on_copied);
  void send_changed(const Look& look, const Route& route, DeviceSide* there);
  void send_some(const Look& look, const Route& route, DeviceSide* there);
  void send_whole(const Lane& lane, ObjectId from, std::size_t offset_there, const Route& route, ObjectId buffer,
                  Range range);
  const Lane& next_lane();
  void scatter_gathered(const Lane& lane, std::span<const cl_uint> numbers, ObjectId buffer, std::size_t first);
  const Lane& scatter(const std::byte* pages, std::span<const cl_uint> numbers, ObjectId buffer, std::size_t first);
  static Conveyor::Job write_job(const Look& look, const Route& route, DeviceSide* there, const std::byte* host,
                                 std::vector<cl_uint> pages);

  Executor& executor_;
  Context& context_;
  Ref<Program> program_;
  bool is_program_there_ = false;
  Ref<Kernel> fingerprint_;
  Ref<Kernel> gather_;
  Ref<Kernel> scatter_;
  std::vector<Lane> lanes_;
  std::optional<RegisteredMemory> lists_;  // what was found, for each lane
  std::size_t turn_ = 0;
  bool scatters_ = false;                         // what no conveyor waits for
  std::map<const Lane*, Conveyor::Number> lent_;  // to the conveyor, which may still read from them
  std::deque<Look> looks_;                        // under way, the oldest first
  std::uint64_t stamp_ = 1;
};

}  // namespace grus::memory
