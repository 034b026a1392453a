// Carries commands out elsewhere: behind a connection is a worker with a local executor. Ids are chosen here, so that
// most of what a program does needs no answer: objects are made, arguments travel inside launches, and writes leave the
// program's memory at once. What only the worker can know is asked for, or told with the hello and with every build.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>

#include "command/executor.hpp"
#include "executor/arena.hpp"
#include "executor/connection.hpp"
#include "executor/vendor_table.hpp"

namespace grus {

class RemoteExecutor final : public Executor {
 public:
  // Throws channel::Lost.
  RemoteExecutor(channel::Opened channel, const std::string& server, channel::Security security);
  // Ends the session at the server. Nobody may use it any more, and no callback of its own may be waiting.
  ~RemoteExecutor() override;
  RemoteExecutor(const RemoteExecutor&) = delete;
  RemoteExecutor& operator=(const RemoteExecutor&) = delete;

  std::vector<PlatformDescription> platforms() override;
  Result<cl_uint> device_count(std::uint32_t platform) override;
  void name_device(std::uint32_t platform, cl_uint index, ObjectId id) override;
  Result<Bytes> device_info(ObjectId device, cl_device_info query) override;
  Result<cl_uint> count_sub_devices(ObjectId parent, const cl_device_partition_property* how) override;
  cl_int create_sub_devices(ObjectId parent, const cl_device_partition_property* how,
                            std::span<const ObjectId> ids) override;
  Result<std::array<cl_ulong, 2>> device_and_host_timer(ObjectId device) override;
  cl_int unload_compiler(std::uint32_t platform) override;
  DriverDescription describe_driver(std::uint32_t platform) override;
  std::shared_ptr<HostMemory> host_memory_for(bool device_shares_it, std::size_t size) override;
  bool works_in_place(ObjectId device) override;
  bool is_in_this_process() const override { return false; }
  std::string address() const override { return server_; }
  void leave() override { connection_->close(); }
  std::uint64_t round_trips() const override { return connection_->round_trips(); }

  std::optional<PageTicket> expect_pages() override;
  std::string connect_pages(const PageTicket& ticket) override;
  Result<PagesSent> send_pages(const PagesOrder& order) override;
  void take_pages(ObjectId queue, const std::function<void(cl_int)>& done) override;
  void end_pages() override;
  void note_move(const MoveStage& stage) override;

  cl_int create_context(ObjectId id, std::span<const ObjectId> devices, std::uint32_t platform,
                        std::span<const cl_context_properties> properties, ErrorNotice notice) override;
  cl_int create_queue(ObjectId id, ObjectId context, ObjectId device,
                      std::span<const cl_queue_properties> properties) override;
  cl_int create_buffer(const NewBuffer& buffer) override;
  cl_int create_sub_buffer(ObjectId id, ObjectId parent, cl_mem_flags flags, Range range) override;
  Result<ImageLayout> create_image(const NewImage& image) override;
  cl_int untold_failure() override;
  cl_int create_sampler(const NewSampler& sampler) override;
  Result<Bytes> supported_formats(ObjectId context, cl_mem_flags flags, cl_mem_object_type type) override;
  void when_memory_is_gone(ObjectId memory, std::function<void()> call) override;
  void free(ObjectType type, ObjectId id) noexcept override;

  BuildOutcome check_program(const BuildOrder& order, std::vector<cl_int>* statuses) override;
  BuildOutcome build(const BuildOrder& order) override;
  Result<std::vector<Bytes>> program_binaries(ObjectId program) override;
  std::string device_identity(ObjectId device) override;
  Result<std::shared_ptr<KernelFacts>> kernel_facts(ObjectId program, const std::string& name) override;
  cl_int create_kernel(ObjectId id, ObjectId program, const KernelFacts& facts) override;
  Result<Bytes> kernel_group_info(ObjectId kernel, ObjectId device, cl_kernel_work_group_info query) override;
  Result<Bytes> kernel_sub_group_info(ObjectId kernel, ObjectId device, cl_kernel_sub_group_info query,
                                      std::span<const std::byte> input, std::size_t room) override;
  cl_int try_argument(ObjectId kernel, cl_uint index, std::size_t size, const void* value) override;

  cl_int submit(const command::Launch& command, const Placement& placement) override;
  cl_int submit(const command::NativeKernel& command, const Placement& placement) override;
  cl_int submit(const command::Read& command, const Placement& placement) override;
  cl_int submit(const command::Write& command, const Placement& placement) override;
  cl_int submit(const command::ReadRectangle& command, const Placement& placement) override;
  cl_int submit(const command::WriteRectangle& command, const Placement& placement) override;
  cl_int submit(const command::Copy& command, const Placement& placement) override;
  cl_int submit(const command::CopyRectangle& command, const Placement& placement) override;
  cl_int submit(const command::Fill& command, const Placement& placement) override;
  cl_int submit(const command::ReadImage& command, const Placement& placement) override;
  cl_int submit(const command::WriteImage& command, const Placement& placement) override;
  cl_int submit(const command::CopyImage& command, const Placement& placement) override;
  cl_int submit(const command::CopyImageToBuffer& command, const Placement& placement) override;
  cl_int submit(const command::CopyBufferToImage& command, const Placement& placement) override;
  cl_int submit(const command::FillImage& command, const Placement& placement) override;
  cl_int submit(const command::MapBuffer& command, const Placement& placement) override;
  cl_int submit(const command::MapImage& command, const Placement& placement) override;
  cl_int submit(const command::Unmap& command, const Placement& placement) override;
  cl_int submit(const command::Migrate& command, const Placement& placement) override;
  cl_int submit(const command::Marker& command, const Placement& placement) override;
  cl_int submit(const command::Barrier& command, const Placement& placement) override;

  cl_int flush(ObjectId queue) override;
  cl_int finish(ObjectId queue) override;
  cl_int wait(std::span<const ObjectId> events) override;
  Result<cl_int> event_status(ObjectId event) override;
  Result<cl_ulong> event_profile(ObjectId event, cl_profiling_info query) override;
  cl_int when_event(ObjectId event, cl_int status, std::function<void(cl_int)> call) override;
  void when_idle(Whose whose, std::function<void()> call) override;
  cl_int set_queue_property(ObjectId queue, cl_command_queue_properties properties, cl_bool enable,
                            cl_command_queue_properties* before) override;

 private:
  static constexpr cl_int kLost = CL_DEVICE_NOT_AVAILABLE;  // what every call answers when the server is lost
  using Facts = std::map<cl_device_info, Result<Bytes>>;
  struct RemoteDevice {
    Facts facts;
    bool in_place = false;
  };
  struct RemotePlatform {
    PlatformDescription description;
    DriverDescription driver;
    std::vector<std::shared_ptr<const RemoteDevice>> devices;
  };
  // What a build told about a kernel.
  struct BuiltKernel {
    std::shared_ptr<KernelFacts> facts;
    std::map<std::pair<std::uint64_t, cl_kernel_work_group_info>, Result<Bytes>> group_info;  // by device and query
  };
  struct RemoteKernel {
    std::shared_ptr<const BuiltKernel> built;
    Triple required_group{};            // all zero: any
    SpinLock lock;                      // guards what the worker's kernel has, from the first argument to the launch
    std::uint64_t stamp = 0;            // of the launch whose arguments it has
    std::vector<std::uint64_t> stamps;  // of the arguments that it has
  };
  // Turns are numbered as commands are told; all up to `done` are known to be finished.
  struct RemoteQueue : std::enable_shared_from_this<RemoteQueue> {
    std::mutex mutex;                    // keeps turns in order, and out of the way of who copies
    std::atomic<std::uint64_t> last{0};  // changed with the mutex
    std::atomic<std::uint64_t> done{0};
    bool in_order = true;
    bool is_profiled = false;
    bool is_own = false;  // see kOwnQueue

    bool is_idle() const { return done.load(std::memory_order_acquire) == last; }
    void is_done(std::uint64_t turn) {
      std::uint64_t known = done.load(std::memory_order_relaxed);
      while (known < turn && !done.compare_exchange_weak(known, turn, std::memory_order_acq_rel)) continue;
    }
  };
  struct RemoteMemory {
    std::byte* host = nullptr;           // where it lives, if in shared memory
    bool in_place = false;               // and its device works on that
    std::shared_ptr<HostMemory> home{};  // what it lives in, unless that is another object's
    std::size_t credit = 0;              // that it has taken
    Connection::Position told = 0;       // where its creation is, which can be taken back; 0: it can't
  };
  struct RemoteImage {
    cl_mem_object_type type = 0;
    std::size_t element_size = 0;
    std::size_t row_pitch = 0;  // of the host memory it stands for
    std::size_t slice_pitch = 0;
  };
  // A read whose data hasn't come. Whatever comes after it in its queue is not finished before it.
  using ReadNumber = std::uint64_t;
  struct Coming {
    ObjectId queue;
    HostBlock to;
    bool is_own = false;  // the queue
  };
  // The reads that come before a command: those of its queue up to one, and of any queue up to another, because it
  // waits for commands of other queues.
  struct Reads {
    ReadNumber own = 0;
    ReadNumber any = 0;
    Whose whose = Whose::all;
  };
  struct RemoteEvent {
    ObjectId queue;
    Reads before;
    std::uint64_t turn = 0;
    cl_int status = CL_QUEUED;  // CL_COMPLETE or an error, once known
  };
  // With the connection's lock.
  struct ReadAnswer {
    std::size_t parts = 0;  // that haven't come
    cl_int code = CL_SUCCESS;
    Reads before;
  };
  struct Mapped {
    ObjectId memory;
    cl_map_flags flags = 0;
    Range range;                 // buffers
    command::ImageRegion where;  // images
  };

  template <typename T, typename... Values>
  Result<T> ask(channel::Kind kind, const Values&... values);
  template <typename... Values>
  cl_int ask_code(channel::Kind kind, const Values&... values);
  template <typename Command>
  cl_int tell(const Command& command, const Placement& placement);
  void make_slots();
  std::byte* take_slot();
  std::byte* take_free_slot();
  bool goes_in_slots(const HostBlock& block, const Placement& placement, bool is_stretch);
  bool is_in_arena(const HostBlock& block) const;
  bool are_complete(std::span<const ObjectId> events);
  template <typename Copy>
  std::optional<cl_int> copy_here(ObjectId memory, const Placement& placement, Copy copy);
  template <typename Command>
  void ask_for(const Command& command, const HostBlock& to, std::byte* slot, const Placement& placement,
               const std::shared_ptr<ReadAnswer>& answer);
  template <typename Command>
  cl_int read(const Command& command, const HostBlock& to, const Placement& placement);
  template <typename Command>
  void write_from(std::byte* slot, const Command& command, const Placement& placement);
  template <typename Command>
  cl_int write_in_slots(const Command& command, const HostBlock& from, const Placement& placement);
  template <typename Command>
  cl_int write(const Command& command, const HostBlock& from, const Placement& placement);
  HostBlock image_block(ObjectId image, const Triple& region, std::size_t row_pitch, std::size_t slice_pitch,
                        const void* start);
  HostBlock block_in_image(ObjectId image, const command::ImageRegion& where);
  template <typename Map>
  cl_int map_shared(const Map& map, const Placement& placement);
  Reads note_place(const Placement& placement, ReadNumber read, std::uint64_t turn);
  Reads note_turn(RemoteQueue& queue, const Placement& placement, ReadNumber read);
  cl_int mark(const Placement& placement);
  RemoteEvent known_event(ObjectId id);
  void event_has_ended(ObjectId id, cl_int status);
  bool has_coming(ObjectId queue, const Reads& before) const;
  void wait_for_reads(ObjectId queue, const Reads& before);
  void after_reads(ObjectId queue, const Reads& before, std::function<void()> call);
  void read_has_come(ReadNumber number);
  bool forget_memory(ObjectId id);
  std::uint64_t place_of(const void* host, std::size_t size, const std::shared_ptr<HostMemory>& home) const;
  RemoteMemory living_in(const std::shared_ptr<HostMemory>& home, ObjectId context);
  void keep_until_idle(std::shared_ptr<HostMemory> home);
  void ask_for_idle();
  BuildOutcome take_outcome(const BuildOrder& order, const std::optional<Bytes>& answer, std::vector<cl_int>* statuses);

  const std::string server_;
  const channel::Security security_;
  std::unique_ptr<Connection> connection_;
  const std::shared_ptr<Arena> arena_;  // null without shared memory
  std::vector<RemotePlatform> platforms_;

  std::mutex mutex_;  // guards what follows
  std::unordered_map<std::uint64_t, std::shared_ptr<const RemoteDevice>> devices_;
  std::unordered_map<std::uint64_t, bool> contexts_in_place_;
  std::unordered_map<std::uint64_t, std::shared_ptr<RemoteQueue>> all_queues_;
  std::vector<std::shared_ptr<HostMemory>> left_homes_;  // of objects that are freed
  bool waits_for_idle_ = false;
  // For what is posted, and may only come when the executor is gone.
  struct Life {
    std::mutex mutex;  // guards is_over
    bool is_over = false;
  };
  const std::shared_ptr<Life> life_ = std::make_shared<Life>();
  std::unordered_map<std::uint64_t, ErrorNotice> notices_;  // by context
  std::unordered_map<std::uint64_t, std::map<std::string, std::shared_ptr<BuiltKernel>>> programs_;
  std::unordered_map<std::uint64_t, RemoteImage> images_;
  std::unordered_map<std::uint64_t, std::shared_ptr<HostMemory>> regions_;  // memory for mappings that isn't shared
  std::unordered_multimap<std::uint64_t, std::shared_ptr<std::function<void()>>> watched_;  // by memory
  std::multimap<const void*, Mapped> mapped_;  // host memory that the program has mapped
  std::size_t credit_ = 0;                     // bytes of buffers that can be made without asking

  VendorTable<RemoteKernel*> kernels_;
  VendorTable<RemoteQueue*> queues_;  // owned by all_queues_
  VendorTable<RemoteMemory> memories_;
  bool has_slots_ = false;

  // With the connection's lock.
  std::vector<std::byte*> free_slots_;
  ReadNumber next_read_ = 1;
  std::map<ReadNumber, Coming> coming_;
  std::unordered_map<std::uint64_t, Reads> reads_;  // the last ones, by queue
  std::unordered_map<std::uint64_t, RemoteEvent> events_;
  struct Parked {
    ObjectId queue;
    Reads before;
    std::function<void()> call;
  };
  std::vector<Parked> parked_;
};

}  // namespace grus
