// Where a session is that is nowhere: objects exist by name only, and what they hold is in host memory, or in a file.
// Nothing runs: commands are held back above the seam for as long as a session is here.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "command/executor.hpp"
#include "move/shelf_file.hpp"

namespace grus::move {

class Shelf : public Executor {
 public:
  Shelf() = default;
  explicit Shelf(const std::string& path) : file_{std::make_unique<ShelfFile>(path)} {}  // throws Refused

  // What an object holds; images are packed.
  struct Shelved {
    std::shared_ptr<HostMemory> memory;  // null if it is in the file
    std::uint64_t place = 0;             // there
    std::size_t size = 0;
    cl_image_desc desc{};
    std::size_t element_size = 0;  // images
  };
  std::map<std::uint64_t, Shelved> contents() const;  // by the object's id
  // What was written so far is safe: if it is in a file, on the disk. Throws Refused.
  void flush() {
    if (file_) file_->flush();
  }

  std::vector<PlatformDescription> platforms() override { return {}; }
  Result<cl_uint> device_count(std::uint32_t) override { return cl_uint{0}; }
  void name_device(std::uint32_t, cl_uint, ObjectId) override {}
  Result<Bytes> device_info(ObjectId, cl_device_info) override { return Failure{kNowhere}; }
  Result<cl_uint> count_sub_devices(ObjectId, const cl_device_partition_property*) override {
    return Failure{kNowhere};
  }
  cl_int create_sub_devices(ObjectId, const cl_device_partition_property*, std::span<const ObjectId>) override {
    return kNowhere;
  }
  Result<std::array<cl_ulong, 2>> device_and_host_timer(ObjectId) override { return Failure{kNowhere}; }
  cl_int unload_compiler(std::uint32_t) override { return CL_SUCCESS; }
  DriverDescription describe_driver(std::uint32_t) override { return {"none", "yes"}; }
  std::shared_ptr<HostMemory> host_memory_for(bool, std::size_t) override { return nullptr; }
  bool works_in_place(ObjectId) override { return false; }
  bool is_in_this_process() const override { return false; }
  bool has_device() const override { return false; }
  std::shared_ptr<HostMemory> contents_of(ObjectId memory) override;
  void session_left() override;
  void leave() override;

  cl_int create_context(ObjectId, std::span<const ObjectId>, std::uint32_t, std::span<const cl_context_properties>,
                        ErrorNotice) override {
    return CL_SUCCESS;
  }
  cl_int create_queue(ObjectId, ObjectId, ObjectId, std::span<const cl_queue_properties>) override {
    return CL_SUCCESS;
  }
  cl_int create_buffer(const NewBuffer& buffer) override;
  cl_int create_sub_buffer(ObjectId, ObjectId, cl_mem_flags, Range) override { return CL_SUCCESS; }
  Result<ImageLayout> create_image(const NewImage& image) override;
  cl_int create_sampler(const NewSampler&) override { return CL_SUCCESS; }
  Result<Bytes> supported_formats(ObjectId, cl_mem_flags, cl_mem_object_type) override { return Failure{kNowhere}; }
  void when_memory_is_gone(ObjectId memory, std::function<void()> call) override;
  void free(ObjectType type, ObjectId id) noexcept override;

  BuildOutcome check_program(const BuildOrder&, std::vector<cl_int>*) override { return {}; }
  BuildOutcome build(const BuildOrder& order) override;
  Result<std::vector<Bytes>> program_binaries(ObjectId) override { return Failure{kNowhere}; }
  std::string device_identity(ObjectId) override { return {}; }
  Result<std::shared_ptr<KernelFacts>> kernel_facts(ObjectId, const std::string&) override { return Failure{kNowhere}; }
  cl_int create_kernel(ObjectId, ObjectId, const KernelFacts&) override { return CL_SUCCESS; }
  Result<Bytes> kernel_group_info(ObjectId, ObjectId, cl_kernel_work_group_info) override { return Failure{kNowhere}; }
  Result<Bytes> kernel_sub_group_info(ObjectId, ObjectId, cl_kernel_sub_group_info, std::span<const std::byte>,
                                      std::size_t) override {
    return Failure{kNowhere};
  }
  cl_int try_argument(ObjectId, cl_uint, std::size_t, const void*) override { return CL_SUCCESS; }

  cl_int submit(const command::Read& read, const Placement&) override;
  cl_int submit(const command::Write& write, const Placement&) override;
  cl_int submit(const command::Fill& fill, const Placement&) override;
  cl_int submit(const command::ReadImage& read, const Placement&) override;
  cl_int submit(const command::WriteImage& write, const Placement&) override;
  cl_int submit(const command::Launch&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::NativeKernel&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::ReadRectangle&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::WriteRectangle&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::Copy&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::CopyRectangle&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::CopyImage&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::CopyImageToBuffer&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::CopyBufferToImage&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::FillImage&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::MapBuffer&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::MapImage&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::Unmap&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::Migrate&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::Marker&, const Placement&) override { return kNowhere; }
  cl_int submit(const command::Barrier&, const Placement&) override { return kNowhere; }

  cl_int flush(ObjectId) override { return CL_SUCCESS; }
  cl_int finish(ObjectId) override { return CL_SUCCESS; }
  cl_int wait(std::span<const ObjectId>) override { return CL_SUCCESS; }
  Result<cl_int> event_status(ObjectId) override { return Failure{kNowhere}; }
  Result<cl_ulong> event_profile(ObjectId, cl_profiling_info) override { return Failure{kNowhere}; }
  cl_int when_event(ObjectId, cl_int, std::function<void(cl_int)>) override { return kNowhere; }
  void when_idle(Whose, std::function<void()> call) override { call(); }
  cl_int set_queue_property(ObjectId, cl_command_queue_properties, cl_bool, cl_command_queue_properties*) override {
    return kNowhere;
  }

 private:
  static constexpr cl_int kNowhere = kWaitsForDevice;

  Shelved* find(ObjectId id);
  Shelved make(std::size_t size) const;
  void put(const Shelved& to, std::size_t offset, const void* from, std::size_t size) const;
  void get(const Shelved& from, std::size_t offset, void* to, std::size_t size) const;

  std::unique_ptr<ShelfFile> file_;  // null: host memory
  mutable std::mutex mutex_;         // guards what follows
  std::map<std::uint64_t, Shelved> memories_;
  std::map<std::uint64_t, std::vector<std::function<void()>>> watched_;
  std::condition_variable changed_;
  bool is_left_ = false;
  std::vector<std::shared_ptr<HostMemory>> unneeded_;  // what was freed since
};

}  // namespace grus::move
