// Carries commands out in this process, with the vendors' drivers loaded here. It serves the program's own process and,
// behind a channel, a worker: there is no second implementation of anything below the seam.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "command/executor.hpp"
#include "executor/splitting.hpp"
#include "executor/staging.hpp"
#include "executor/turn.hpp"
#include "executor/vendor.hpp"
#include "executor/vendor_table.hpp"
#include "executor/watch.hpp"

namespace grus {

class LocalExecutor final : public Executor {
 public:
  // Loads the vendors named by the environment.
  LocalExecutor();
  struct NoVendors {};
  static constexpr NoVendors kNoVendors{};
  explicit LocalExecutor(NoVendors) {}
  // Everything that was made must be freed before.
  ~LocalExecutor() override;
  // Nobody uses it: forgets its drivers, unless one still has work. They are loaded again if somebody asks for devices.
  bool let_drivers_go();
  // Commands for this device wait for their turn. Before there are queues; the turn outlives this.
  void share_device(std::uint32_t platform, cl_uint index, Turn& turn);
  Turn* turn_at(ObjectId queue) const { return queues_[queue] ? queues_[queue]->turn : nullptr; }
  // Makes a context of the device before somebody wants one, which takes a GPU's driver long. The first that is made of
  // such a device alone is it; contexts of other devices are given up then.
  void make_context_ready(std::uint32_t platform, cl_uint index);
  // Whether a launch is to be sent some pieces at a time, between which the device may be given to others; and what
  // waits there until it is back.
  bool goes_in_pieces(const command::Launch& launch, ObjectId queue);
  std::function<cl_int(Turn&)> wait_for_room = [](Turn& turn) {
    turn.wait_for_room();
    return CL_SUCCESS;
  };
  LocalExecutor(const LocalExecutor&) = delete;
  LocalExecutor& operator=(const LocalExecutor&) = delete;

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
  std::shared_ptr<HostMemory> host_memory_for(bool device_shares_it, std::size_t size) override {
    return device_shares_it ? memory_from_heap(size) : memory_in_pages(size);
  }
  bool works_in_place(ObjectId device) override;
  bool is_in_this_process() const override { return true; }

  cl_int create_context(ObjectId id, std::span<const ObjectId> devices, std::uint32_t platform,
                        std::span<const cl_context_properties> properties, ErrorNotice notice) override;
  cl_int create_queue(ObjectId id, ObjectId context, ObjectId device,
                      std::span<const cl_queue_properties> properties) override;
  cl_int create_buffer(const NewBuffer& buffer) override;
  cl_int create_sub_buffer(ObjectId id, ObjectId parent, cl_mem_flags flags, Range range) override;
  Result<ImageLayout> create_image(const NewImage& image) override;
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
  struct VendorPlatform {
    cl_platform_id handle = nullptr;
    PlatformDescription description;
    DriverDescription driver;
    int version = 0;  // 300 for 3.0: vendors' tables of functions are only as long as their version asks
    std::vector<cl_device_id> devices;
  };
  struct VendorContext {
    cl_context handle = nullptr;
    int version = 0;
    ErrorNotice notice;
  };
  enum class Listens : bool { no, yes };
  static Result<std::shared_ptr<VendorContext>> make_context(const VendorPlatform& platform,
                                                             std::span<const cl_device_id> devices,
                                                             std::span<const cl_context_properties> properties,
                                                             Listens listens);
  std::shared_ptr<VendorContext> take_ready_context(std::span<const cl_device_id> devices);
  struct VendorQueue {
    cl_command_queue handle = nullptr;
    cl_device_id device = nullptr;
    bool is_own = false;  // see kOwnQueue
    bool in_order = true;
    std::atomic<bool> busy{false};           // something was enqueued since it was last known to be idle
    Turn* turn = nullptr;                    // where it is shared with other processes
    std::size_t width = 1;                   // work-groups that its device runs at once, at least
    std::unique_ptr<Staging> staging;        // where the device has memory of its own
    std::shared_ptr<VendorContext> context;  // whose notice the driver may call for as long as there is work
  };
  struct VendorKernel {
    cl_kernel handle = nullptr;
    SpinLock lock;                      // guards what the vendor's kernel holds, from the first argument to the launch
    std::uint64_t stamp = 0;            // of the launch whose arguments it holds
    std::vector<std::uint64_t> stamps;  // of the arguments that it holds
    std::uint32_t kind = 0;             // see Work
    Splits splits = Splits::never;
  };
  // What to do when the vendor is done with a memory object.
  struct Gone {
    std::shared_ptr<HostMemory> host_memory;
    std::function<void()> call;
  };
  struct VendorMemory {
    cl_mem handle = nullptr;
    const void* pinned = nullptr;  // the start of the host memory it works in
    bool is_region = false;        // see NewBuffer
  };
  struct VendorEvent {
    cl_event last = nullptr;
    cl_event first = nullptr;  // of a command that was sent in several parts, for its profile
  };

  // With work for the device, or without any.
  template <typename Call>
  cl_int place(const Placement& placement, const Work& work, Call call);
  template <typename Call>
  cl_int place_in_turn(const Placement& placement, const Work& work, Call call);
  template <typename Call>
  cl_int place(const Placement& placement, Call call);
  template <typename Call>
  cl_int place_in_full(const Placement& placement, cl_command_queue queue, Call call);
  template <typename Copy>
  cl_int stage(const Placement& placement, std::size_t size, Copy copy);
  bool should_stage(const Placement& placement, std::size_t size, const void* host) const;
  static Work whole_of(const VendorKernel& kernel, const command::Launch& launch);
  static std::size_t first_parts(const Work& whole, const VendorQueue& queue, const Cutter& cutter);
  cl_int launch_in_pieces(VendorKernel& kernel, const command::Launch& launch, const Placement& placement,
                          const Work& whole, Cutter cutter, std::size_t parts);
  cl_int set_arguments(VendorKernel& kernel, const command::Launch& launch);
  cl_int set_argument(cl_kernel kernel, cl_uint index, const Argument& argument);
  const VendorContext& context_of(ObjectId id) const { return **contexts_[id]; }
  cl_int add_memory(ObjectId id, const VendorMemory& memory, std::size_t size, std::shared_ptr<HostMemory> host_memory);
  static cl_int watch(cl_mem handle, Gone gone);
  void free_queue(std::unique_ptr<VendorQueue> queue);
  void free_memory(const VendorMemory& memory);
  std::vector<cl_device_id> handles_of(std::span<const ObjectId> devices) const;
  Result<cl_program> make_program(const BuildOrder& order, std::vector<cl_int>* statuses);
  Result<cl_program> link_again(const BuildOrder& order);
  cl_int compile(const BuildOrder& order, cl_program program, std::span<const cl_device_id> devices);
  Result<cl_program> link(const BuildOrder& order, cl_int* code);
  void replace_program(const BuildOrder& order, cl_program program, BuildOutcome& outcome);
  static void describe_builds(const BuildOrder& order, cl_program program, std::span<const cl_device_id> devices,
                              BuildOutcome& outcome);

  static std::vector<VendorPlatform> platforms_of(std::span<const std::shared_ptr<Vendor>> vendors);
  static std::vector<std::shared_ptr<Vendor>> load_vendors();
  void load_again();

  std::mutex load_mutex_;  // guards loading again
  std::vector<std::shared_ptr<Vendor>> vendors_;
  std::vector<VendorPlatform> platforms_;
  // Those who asked when it would be idle and weren't answered yet.
  std::shared_ptr<std::atomic<int>> askers_ = std::make_shared<std::atomic<int>>(0);
  VendorTable<cl_device_id> devices_;
  VendorTable<std::shared_ptr<VendorContext>*> contexts_;
  std::map<cl_device_id, std::shared_ptr<VendorContext>> ready_contexts_;
  VendorTable<VendorQueue*> queues_;
  VendorTable<VendorMemory> memories_;
  VendorTable<cl_sampler> samplers_;
  VendorTable<cl_program> programs_;
  VendorTable<VendorKernel*> kernels_;
  VendorTable<VendorEvent> events_;
  PinnedRanges pinned_;
  std::map<cl_device_id, Turn*> turns_;
  std::mutex splits_mutex_;                 // guards what follows
  std::map<std::uint64_t, Splits> splits_;  // of programs, where devices are shared
  std::mutex in_place_mutex_;               // guards what follows
  std::map<cl_device_id, bool> in_place_;
  std::mutex queues_mutex_;  // guards the two that follow
  std::vector<VendorQueue*> all_queues_;
  // Queues that the program has released with work in them, and the marker behind that work. Vendors' events need their
  // queue, and PoCL's queues their sub-device, so all stay until the work is done.
  struct Leaving {
    std::unique_ptr<VendorQueue> queue;
    cl_event marker = nullptr;
  };
  static bool release_if_done(const Leaving& leaving);
  Turn* turn_of(cl_device_id device) const;
  cl_int finish_leaving();  // waits for what released queues still have to do
  std::vector<Leaving> leaving_;
  Watch watch_;  // the first to go: it looks at events
};

}  // namespace grus
