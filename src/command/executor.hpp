// The seam. What is above holds objects and commands; an Executor carries commands out, in this process or elsewhere.
// Everything that crosses is named by ids that are chosen above. Functions return OpenCL error codes.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "command/callbacks.hpp"
#include "command/command.hpp"
#include "objects/below.hpp"

namespace grus {

enum class Blocking : bool { no, yes };

// Where a command goes: its queue, the commands it waits for (all of them below the seam already), the event it is to
// be known by (none: nobody will ask), and whether the call returns only when it is done.
struct Placement {
  ObjectId queue;
  std::span<const ObjectId> waits;
  ObjectId event;
  Blocking blocking = Blocking::no;
};

struct PlatformDescription {
  std::string name;
  std::string vendor;
  std::string version;
  std::string profile;
  std::string extensions;
  std::vector<cl_name_version> versioned_extensions;  // OpenCL 3.0 and later
  cl_ulong host_timer_resolution = 0;
};

struct DriverDescription {
  std::string file;    // of its library
  std::string unload;  // yes, no or unknown, and why
};

using ErrorNotice = Context::Notice;

// A property of queues that Grus makes for itself.
inline constexpr cl_queue_properties kOwnQueue = 0x47525553;

// Whose commands are meant: those of the program's queues, or Grus's own too.
enum class Whose : std::uint8_t { programs, all };

struct NewBuffer {
  ObjectId id;
  ObjectId context;
  cl_mem_flags flags = 0;  // without the host pointer flags, which the two pointers below stand for
  std::vector<cl_mem_properties> properties;
  std::size_t size = 0;
  void* host = nullptr;                     // memory to work in, registered for the device's use
  const void* initial = nullptr;            // or contents to start with
  std::shared_ptr<HostMemory> host_memory;  // kept until the vendor is done with it
  bool is_region = false;  // commands on other buffers read and write its host memory, and may when it is freed
};

struct NewImage {
  ObjectId id;
  ObjectId context;
  cl_mem_flags flags = 0;
  std::vector<cl_mem_properties> properties;
  cl_image_format format{};
  cl_image_desc desc{};
  ObjectId from;  // the buffer or image it is a view of
  void* host = nullptr;
  const void* initial = nullptr;
  std::size_t host_bytes = 0;  // behind either pointer
  std::shared_ptr<HostMemory> host_memory;
};

struct ImageLayout {
  std::size_t element_size = 0;
  std::size_t row_pitch = 0;
  std::size_t slice_pitch = 0;
  std::size_t size = 0;
};

struct NewSampler {
  ObjectId id;
  ObjectId context;
  cl_bool normalized = CL_TRUE;
  cl_addressing_mode addressing = 0;
  cl_filter_mode filter = 0;
  std::vector<cl_sampler_properties> properties;  // if made with them
};

// What a build, compile or link is asked to do. Each makes a fresh program below the seam.
struct BuildOrder {
  enum class Step : std::uint8_t { build, compile, link };
  ObjectId program;
  ObjectId context;
  std::vector<ObjectId> program_devices;  // that the program is for
  std::vector<ObjectId> devices;          // to build for now; empty: all of the program's
  Step step = Step::build;
  std::string options;
  std::shared_ptr<const Recipe> recipe;
  std::vector<ObjectId> inputs;  // of a link: programs compiled below
};

// What every order for a program says.
BuildOrder order_for(const Program& program);

// Memory that goes straight from one server to another: where to, and by whose leave.
struct PageTicket {
  std::string address;
  bool is_secure = false;
  std::uint64_t session = 0;
  std::array<std::uint8_t, 32> key{};
};

// A part of a buffer, of which what has changed since it was sent goes there. How it is compared is said in figures of
// the memory folder's.
struct PagesOrder {
  ObjectId memory;
  ObjectId queue;
  Range range;
  std::uint8_t kind = 0;
  std::uint8_t sample = 0;
  std::uint8_t sample_at = 0;
  bool is_last = false;
  // If it is set, all of the range goes there as it is: nothing is compared.
  ObjectId to{};
  std::uint64_t to_offset = 0;
};

struct PagesSent {
  std::uint64_t read = 0;  // bytes
  std::uint64_t sent = 0;
  std::uint64_t zero = 0;
  std::uint64_t never_sent = 0;
  std::uint64_t sampled = 0;
};

// How far a move has come: bytes of its phase, so far and at most.
struct MoveStage {
  enum class Way : std::uint8_t { none, leaves, arrives };  // none: it is over
  Way way = Way::none;
  std::uint64_t done = 0;
  std::uint64_t all = 0;
};

class Executor : public BelowSeam {
 public:
  virtual ~Executor() = default;

  // Devices
  virtual std::vector<PlatformDescription> platforms() = 0;
  virtual Result<cl_uint> device_count(std::uint32_t platform) = 0;
  virtual void name_device(std::uint32_t platform, cl_uint index, ObjectId id) = 0;
  virtual Result<Bytes> device_info(ObjectId device, cl_device_info query) = 0;
  virtual Result<cl_uint> count_sub_devices(ObjectId parent, const cl_device_partition_property* how) = 0;
  virtual cl_int create_sub_devices(ObjectId parent, const cl_device_partition_property* how,
                                    std::span<const ObjectId> ids) = 0;
  virtual Result<std::array<cl_ulong, 2>> device_and_host_timer(ObjectId device) = 0;
  virtual cl_int unload_compiler(std::uint32_t platform) = 0;
  virtual DriverDescription describe_driver(std::uint32_t platform) = 0;
  // Memory of this process that objects can live in; null if that is only copied from and to. Throws std::bad_alloc.
  virtual std::shared_ptr<HostMemory> host_memory_for(bool device_shares_it, std::size_t size) = 0;
  // Whether kernels work on such memory itself, so that it can be read and written without commands while none runs.
  virtual bool works_in_place(ObjectId device) = 0;
  virtual std::uint64_t round_trips() const { return 0; }  // so far, to a server
  virtual bool is_in_this_process() const = 0;
  virtual bool has_device() const { return true; }
  // What a buffer holds, where that is host memory which nobody but a move reads and writes; else null.
  virtual std::shared_ptr<HostMemory> contents_of(ObjectId) { return nullptr; }
  virtual std::string address() const { return "local"; }  // as `grus move --to` names it
  virtual void session_left() {}                           // the session is elsewhere
  virtual void leave() {}                                  // and nobody uses this any more
  virtual void note_move(const MoveStage&) {}              // for who looks after the device

  // Memory of a session that moves between servers. The destination gives a ticket, the source connects with it (or
  // says why it can't), and then one sends while the other takes, which `done` is told of.
  virtual std::optional<PageTicket> expect_pages() { return std::nullopt; }
  virtual std::string connect_pages(const PageTicket&) { return "it is no server"; }
  virtual Result<PagesSent> send_pages(const PagesOrder&) { return Failure{CL_INVALID_OPERATION}; }
  virtual void take_pages(ObjectId /*queue*/, const std::function<void(cl_int)>& done) { done(CL_INVALID_OPERATION); }
  virtual void end_pages() {}

  // Objects
  virtual cl_int create_context(ObjectId id, std::span<const ObjectId> devices, std::uint32_t platform,
                                std::span<const cl_context_properties> properties, ErrorNotice notice) = 0;
  virtual cl_int create_queue(ObjectId id, ObjectId context, ObjectId device,
                              std::span<const cl_queue_properties> properties) = 0;
  virtual cl_int create_buffer(const NewBuffer& buffer) = 0;
  virtual cl_int create_sub_buffer(ObjectId id, ObjectId parent, cl_mem_flags flags, Range range) = 0;
  // Why something couldn't be made whose creation isn't answered, if that is so.
  virtual cl_int untold_failure() { return CL_SUCCESS; }
  virtual Result<ImageLayout> create_image(const NewImage& image) = 0;
  virtual cl_int create_sampler(const NewSampler& sampler) = 0;
  virtual Result<Bytes> supported_formats(ObjectId context, cl_mem_flags flags, cl_mem_object_type type) = 0;

  // Programs. check_program makes what can be made before a build, of IL and binaries, and tells what it is; a binary
  // that doesn't fit has a status per device.
  virtual BuildOutcome check_program(const BuildOrder& order, std::vector<cl_int>* statuses) = 0;
  virtual BuildOutcome build(const BuildOrder& order) = 0;
  virtual Result<std::vector<Bytes>> program_binaries(ObjectId program) = 0;
  // What a vendor's binary can be loaded by: it is only good for a device of the same identity.
  virtual std::string device_identity(ObjectId device) = 0;
  virtual Result<std::shared_ptr<KernelFacts>> kernel_facts(ObjectId program, const std::string& name) = 0;
  virtual cl_int create_kernel(ObjectId id, ObjectId program, const KernelFacts& facts) = 0;
  virtual Result<Bytes> kernel_group_info(ObjectId kernel, ObjectId device, cl_kernel_work_group_info query) = 0;
  virtual Result<Bytes> kernel_sub_group_info(ObjectId kernel, ObjectId device, cl_kernel_sub_group_info query,
                                              std::span<const std::byte> input, std::size_t room) = 0;
  virtual cl_int try_argument(ObjectId kernel, cl_uint index, std::size_t size, const void* value) = 0;

  // Commands
  virtual cl_int submit(const command::Launch& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::NativeKernel& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::Read& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::Write& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::ReadRectangle& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::WriteRectangle& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::Copy& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::CopyRectangle& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::Fill& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::ReadImage& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::WriteImage& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::CopyImage& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::CopyImageToBuffer& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::CopyBufferToImage& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::FillImage& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::MapBuffer& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::MapImage& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::Unmap& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::Migrate& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::Marker& command, const Placement& placement) = 0;
  virtual cl_int submit(const command::Barrier& command, const Placement& placement) = 0;

  // Waiting and asking
  virtual cl_int flush(ObjectId queue) = 0;
  virtual cl_int finish(ObjectId queue) = 0;
  virtual cl_int wait(std::span<const ObjectId> events) = 0;
  virtual Result<cl_int> event_status(ObjectId event) = 0;
  virtual Result<cl_ulong> event_profile(ObjectId event, cl_profiling_info query) = 0;
  // Calls once the event reaches the status or fails; the call comes from a thread of the vendor's and must only post.
  virtual cl_int when_event(ObjectId event, cl_int status, std::function<void(cl_int)> call) = 0;
  // Calls once, from any thread, when everything it was given so far is finished.
  virtual void when_idle(Whose whose, std::function<void()> call) = 0;
  void keep_while_busy(std::shared_ptr<HostMemory> memory) final {
    when_idle(Whose::all, [memory = std::move(memory)]() mutable {
      callbacks::post([memory = std::move(memory)] {});  // giving it back may take locks
    });
  }
  virtual cl_int set_queue_property(ObjectId queue, cl_command_queue_properties properties, cl_bool enable,
                                    cl_command_queue_properties* before) = 0;
};

// The executors that a session starts with, at least one; defined by what links the library together
// (src/executor/starting.cpp).
std::span<Executor* const> starting_executors();

// Those that it has now. Changed by moves, with the gate closed.
std::vector<Executor*>& executors_in_use();

inline Executor& executor_of(const Context& context) {
  return static_cast<Executor&>(*context.below.load(std::memory_order_relaxed));
}
inline Executor& executor_of(const Device& device) { return static_cast<Executor&>(*device.home.executor); }
inline Executor& executor_of(const Queue& queue) { return executor_of(*queue.context); }

// What the program is told about a device, asked for once.
const Result<Bytes>& told_of(Device& device, cl_device_info query);

std::uint64_t round_trips_so_far();  // of all executors in use

// Keeps an executor while a thread uses it outside the gate. To be made inside.
class Pin {
 public:
  explicit Pin(Executor& executor) : executor_{executor} { executor_.pins.fetch_add(1, std::memory_order_relaxed); }
  ~Pin() { executor_.pins.fetch_sub(1, std::memory_order_release); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  Executor* operator->() const { return &executor_; }
  Executor& operator*() const { return executor_; }

 private:
  Executor& executor_;
};

// Memory for a new object's bytes to live in: where the device works on the host's anyway, or where the program asked
// for it. Else null.
inline std::shared_ptr<HostMemory> home_for(const Memory& memory, std::size_t size) {
  if (!memory.context->shares_host_memory() && !(memory.flags & CL_MEM_ALLOC_HOST_PTR)) return nullptr;
  return executor_of(*memory.context).host_memory_for(memory.context->shares_host_memory(), size);
}

}  // namespace grus
