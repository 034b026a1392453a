// Session: devices, objects and programs.
#include <algorithm>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "server/session.hpp"

namespace grus::server {

using channel::Head;
using channel::Kind;
using wire::BadMessage;
using wire::Reader;

namespace {

constexpr std::size_t kLargestValue = 64 * 1024;  // of an argument; devices take 1 to 4 KiB
constexpr cl_kernel_work_group_info kGroupQueries[] = {
    CL_KERNEL_WORK_GROUP_SIZE, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, CL_KERNEL_LOCAL_MEM_SIZE,
    CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, CL_KERNEL_PRIVATE_MEM_SIZE};

template <typename T>
std::vector<T> closed(std::vector<T> list) {
  list.push_back(0);
  return list;
}

// A list of properties, which drivers read up to its zero.
template <typename T>
std::vector<T> ended(std::vector<T> list) {
  return list.empty() || list.back() == 0 ? list : closed(std::move(list));
}

}  // namespace

// By the number that the client was told.
const OfferedPlatform& Session::offered_platform(std::uint32_t number) const {
  if (number >= terms_.offer.size()) throw BadMessage{"a platform that isn't there"};
  return terms_.offer[number];
}

// By which the server knows the device, as all of its workers do.
std::uint32_t Session::number_of(std::uint32_t platform, cl_uint index) const {
  std::size_t number = index;
  for (std::uint32_t before = 0; before < platform; ++before) number += terms_.offer[before].devices.size();
  return static_cast<std::uint32_t>(number);
}

void Session::handle_devices(const Head& head, Reader& reader) {
  switch (head.kind) {
    case Kind::device_info: {
      const auto device = reader.take<ObjectId>();
      const auto query = reader.take<cl_device_info>();
      check(ObjectType::device, device);
      return answer(head.number, device_fact(device, query));
    }
    case Kind::name_device: {
      const auto platform = reader.take<std::uint32_t>();
      const auto index = reader.take<cl_uint>();
      const auto id = reader.take<ObjectId>();
      const OfferedPlatform& offered = offered_platform(platform);
      if (index >= offered.devices.size()) throw BadMessage{"a device that isn't there"};
      check_new(ObjectType::device, id);
      executor_.name_device(offered.index, offered.devices[index], id);
      create(ObjectType::device, id, CL_SUCCESS);
      if (executor_.works_in_place(id)) in_place_.insert(id.value());
      device_numbers_[id.value()] = number_of(platform, index);
      return;
    }
    case Kind::count_sub_devices: {
      const auto parent = reader.take<ObjectId>();
      const auto how = closed(reader.take<std::vector<cl_device_partition_property>>());
      check(ObjectType::device, parent);
      return answer(head.number, executor_.count_sub_devices(parent, how.data()));
    }
    case Kind::create_sub_devices: {
      const auto parent = reader.take<ObjectId>();
      const auto how = closed(reader.take<std::vector<cl_device_partition_property>>());
      const auto ids = reader.take<std::vector<ObjectId>>();
      std::unordered_set<std::uint32_t> slots;
      for (const ObjectId id : ids) {
        check_new(ObjectType::device, id);
        if (!slots.insert(id.slot()).second) throw BadMessage{"an object that is there already"};
      }
      check(ObjectType::device, parent);
      const cl_int code = executor_.create_sub_devices(parent, how.data(), ids);
      if (code == CL_SUCCESS) {
        for (const ObjectId id : ids) {
          create(ObjectType::device, id, CL_SUCCESS);
          device_numbers_[id.value()] = device_numbers_[parent.value()];
          if (in_place_.contains(parent.value())) in_place_.insert(id.value());
        }
      }
      return answer(head.number, code);
    }
    case Kind::timer: {
      const auto device = reader.take<ObjectId>();
      check(ObjectType::device, device);
      return answer(head.number, executor_.device_and_host_timer(device));
    }
    case Kind::unload_compiler: {
      const auto platform = reader.take<std::uint32_t>();
      return answer(head.number, executor_.unload_compiler(offered_platform(platform).index));
    }
    default:
      throw BadMessage{"a message of no known kind"};
  }
}

// What drivers refuse when their device is full.
cl_int Session::with_room(const std::function<cl_int()>& make) {
  for (;;) {
    const cl_int code = make();
    const bool is_full =
        code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY || code == CL_MEM_OBJECT_ALLOCATION_FAILURE;
    if (!is_full || !residency_.get_room_for_context()) return code;
  }
}

void Session::handle_objects(const Head& head, Reader& reader) {
  switch (head.kind) {
    case Kind::create_context: {
      const auto id = reader.take<ObjectId>();
      const auto devices = reader.take<std::vector<ObjectId>>();
      const auto platform = reader.take<std::uint32_t>();
      const auto properties = reader.take<std::vector<cl_context_properties>>();
      check_new(ObjectType::context, id);
      check_all(ObjectType::device, devices);
      if (devices.empty()) throw BadMessage{"a context of nothing"};
      const auto notice = [this, id](const char* text, const void*, std::size_t) {
        post([this, id, text = std::string{text}] { send(Kind::notice, 0, {}, id, text); });
      };
      const std::uint32_t index = offered_platform(platform).index;
      const cl_int code = with_room([&] { return executor_.create_context(id, devices, index, properties, notice); });
      if (code == CL_SUCCESS) {
        create(ObjectType::context, id, code);
        expect_bulk_use(id, devices);
        note_devices(devices);
        const std::uint32_t number = device_numbers_[devices[0].value()];
        const bool is_one = std::all_of(devices.begin(), devices.end(),
                                        [&](ObjectId device) { return device_numbers_[device.value()] == number; });
        context_places_[id.value()] = {devices[0], number, is_one};
        contexts_in_place_[id.value()] = std::all_of(
            devices.begin(), devices.end(), [&](ObjectId device) { return in_place_.contains(device.value()); });
      }
      return answer(head.number, code);
    }
    case Kind::create_queue: {
      const auto id = reader.take<ObjectId>();
      const auto context = reader.take<ObjectId>();
      const auto device = reader.take<ObjectId>();
      const auto properties = reader.take<std::vector<cl_queue_properties>>();
      check_new(ObjectType::queue, id);
      check(ObjectType::context, context);
      check(ObjectType::device, device);
      const cl_int code = with_room([&] { return executor_.create_queue(id, context, device, properties); });
      if (code == CL_SUCCESS) {
        create(ObjectType::queue, id, code);
        const auto queue = std::make_shared<Queue>();
        for (std::size_t next = 0; next + 1 < properties.size(); next += 2) {
          if (properties[next] != CL_QUEUE_PROPERTIES) continue;
          queue->in_order = !(properties[next + 1] & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
          queue->is_profiled = (properties[next + 1] & CL_QUEUE_PROFILING_ENABLE) != 0;
        }
        queue->is_called_back = in_place_.contains(device.value());
        queues_[id.value()] = queue;
      }
      return answer(head.number, code);
    }
    case Kind::create_buffer: {
      NewBuffer order;
      reader(order);
      check_new(ObjectType::memory, order.id);
      check(ObjectType::context, order.context);
      order.properties = ended(std::move(order.properties));
      order.host = shared_at(reader.take<std::uint64_t>(), order.size);
      if (order.is_region && !order.host) throw BadMessage{"memory for mappings that isn't shared"};
      const cl_int code = create_buffer(head, order);
      create(head, ObjectType::memory, order.id, code);
      Memory& memory = memories_[order.id.value()];
      memory.size = order.size;
      memory.context = order.context;
      memory.may_be_foreign = code == CL_SUCCESS && !order.host && head.bulk == 0;
      if (contexts_in_place_[order.context.value()]) memory.host = static_cast<std::byte*>(order.host);
      if (code == CL_SUCCESS && !order.is_region) count_memory(order.id, order.size);
      ++memory_changes_;
      return answer(head.number, code);
    }
    case Kind::create_sub_buffer: {
      const auto id = reader.take<ObjectId>();
      const auto parent = reader.take<ObjectId>();
      const auto flags = reader.take<cl_mem_flags>();
      const auto range = reader.take<Range>();
      check_new(ObjectType::memory, id);
      cl_int code = check(ObjectType::memory, parent);
      const Memory whole = memories_[parent.value()];
      if (range.offset > whole.size || range.size > whole.size - range.offset)
        throw BadMessage{"a range beyond its object"};
      Residency::Lock use;
      if (code == CL_SUCCESS) code = hold_for_view(parent, use);
      if (code == CL_SUCCESS) code = clear_for_view(parent);
      if (code == CL_SUCCESS) code = executor_.create_sub_buffer(id, parent, flags, range);
      create(head, ObjectType::memory, id, code);
      Memory& memory = memories_[id.value()];
      memory.size = range.size;
      memory.context = whole.context;
      memory.clearing = memories_[parent.value()].clearing;
      if (whole.host) memory.host = whole.host + range.offset;
      return;
    }
    case Kind::create_image: {
      NewImage order;
      reader(order);
      check_new(ObjectType::memory, order.id);
      check(ObjectType::context, order.context);
      cl_int found = order.from ? check(ObjectType::memory, order.from) : CL_SUCCESS;
      Residency::Lock use;
      if (order.from && found == CL_SUCCESS) found = hold_for_view(order.from, use);
      if (order.from && found == CL_SUCCESS) found = clear_for_view(order.from);
      order.properties = ended(std::move(order.properties));
      if (const auto place = reader.take<std::uint64_t>(); place != 0)
        order.host = shared_at(place, most_bytes(order.desc));
      const Data initial = head.bulk != 0 ? receive_image(head.bulk, most_bytes(order.desc)) : nullptr;
      order.initial = initial.get();
      auto layout = found == CL_SUCCESS ? executor_.create_image(order) : Failure{found};
      if (layout && !order.from && !may_have(layout->size)) {
        executor_.free(ObjectType::memory, order.id);
        layout = Failure{CL_MEM_OBJECT_ALLOCATION_FAILURE};
      }
      if (layout) {
        create(ObjectType::memory, order.id, CL_SUCCESS);
        Memory& memory = memories_[order.id.value()];
        memory = {layout->size, layout->element_size, order.desc.image_type};
        memory.region = ImageFacts{.desc = order.desc}.extent();
        memory.context = order.context;
        memory.may_be_foreign = !order.from && !order.host && !order.initial;
        if (order.from) memory.clearing = memories_[order.from.value()].clearing;
        if (!order.from) count_memory(order.id, layout->size);
        if (!order.from && !order.host) {
          NewBuffer size;
          size.id = order.id;
          size.context = order.context;
          size.size = layout->size;
          note_room(size, Residency::Kind::fixed);
        }
      }
      return answer(head.number, layout);
    }
    case Kind::create_sampler: {
      NewSampler order;
      reader(order);
      check_new(ObjectType::sampler, order.id);
      check(ObjectType::context, order.context);
      order.properties = ended(std::move(order.properties));
      const cl_int code = executor_.create_sampler(order);
      if (code == CL_SUCCESS) create(ObjectType::sampler, order.id, code);
      return answer(head.number, code);
    }
    case Kind::supported_formats: {
      const auto context = reader.take<ObjectId>();
      const auto flags = reader.take<cl_mem_flags>();
      const auto type = reader.take<cl_mem_object_type>();
      check(ObjectType::context, context);
      return answer(head.number, executor_.supported_formats(context, flags, type));
    }
    case Kind::watch_memory: {
      const auto memory = reader.take<ObjectId>();
      Residency::Lock use;
      if (check(ObjectType::memory, memory) != CL_SUCCESS || hold_for_view(memory, use) != CL_SUCCESS)
        return answer(head.number);
      return executor_.when_memory_is_gone(memory,
                                           [this, number = head.number] { post([this, number] { answer(number); }); });
    }
    case Kind::free: {
      const auto type = reader.take<ObjectType>();
      const auto id = reader.take<ObjectId>();
      if (type > ObjectType::event) throw BadMessage{"an object of no known type"};
      return free(type, id);
    }
    default:
      throw BadMessage{"a message of no known kind"};
  }
}

// It has its place on the device until it is gone: the driver has more of it than commands that use it.
cl_int Session::hold_for_view(ObjectId id, Residency::Lock& use) {
  if (!residency_.is_on()) return CL_SUCCESS;
  residency_.fix(id);
  return residency_.use({&id, 1}, use);
}

// Of what devices have in memory of their own.
void Session::note_room(const NewBuffer& order, Residency::Kind kind) {
  const ContextPlace& place = context_places_[order.context.value()];
  if (!terms_.moves_out || contexts_in_place_[order.context.value()] || place.number >= LeasePage::kDevices) return;
  const ObjectId queue = own_queue_of(order.context);
  residency_.add(order, place.number, queue, place.is_one_device && queue ? kind : Residency::Kind::fixed);
}

// Where there is no memory for it, its contents come all the same.
cl_int Session::create_buffer(const Head& head, NewBuffer& order) {
  if (head.bulk != 0) expect_bulk(head.bulk, order.size);
  const bool has_home = contexts_in_place_[order.context.value()] && !order.host;
  Data initial;
  bool fits = order.is_region || may_have(order.size);
  if (fits && has_home) {
    try {
      order.host_memory = memory_from_heap(order.size);
      order.host = order.host_memory->data();
    } catch (const std::bad_alloc&) {
      fits = false;
    }
  } else if (fits && head.bulk != 0) {
    initial = allocate(order.size);
    order.initial = initial.get();
    fits = initial != nullptr;
  }
  if (!fits) {
    skip_bulk(head.bulk);
    return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  }
  if (head.bulk != 0) input_.read(has_home ? order.host : initial.get(), head.bulk);
  if (order.host) return executor_.create_buffer(order);
  // With contents it has its place there at once, else when it is used.
  note_room(order, Residency::Kind::buffer);
  Residency::Lock use;
  cl_int code = head.bulk != 0 ? residency_.use({&order.id, 1}, use, Residency::Excess::refused) : CL_SUCCESS;
  if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE && residency_.keep_at_host(order.id, initial.get(), use))
    return CL_SUCCESS;
  if (code == CL_SUCCESS) code = executor_.create_buffer(order);
  if (use) use.unlock();
  if (code != CL_SUCCESS) residency_.forget(order.id);
  return code;
}

template <typename Visit>
void Session::each_used(const BuildOrder& order, Visit visit) {
  visit(ObjectType::program, order.program);
  visit(ObjectType::context, order.context);
  for (const ObjectId id : order.program_devices) visit(ObjectType::device, id);
  for (const ObjectId id : order.devices) visit(ObjectType::device, id);
  for (const ObjectId id : order.inputs) visit(ObjectType::program, id);
}

namespace {

// Calls unless it is gone by then. Compilers can't be interrupted.
class Deadline {
 public:
  Deadline(std::chrono::seconds limit, std::function<void()> call) {
    if (limit.count() == 0) return;
    thread_ = start_thread("grus-deadline", [this, limit, call = std::move(call)] {
      std::unique_lock lock{mutex_};
      if (!over_.wait_for(lock, limit, [this] { return is_over_; })) call();
    });
  }
  ~Deadline() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock{mutex_};
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace

void Session::build(Number number, const BuildOrder& order, bool only_check) {
  const Deadline deadline{terms_.end ? terms_.build_limit : std::chrono::seconds{0}, [this] {
                            end_for(fmt::format("a build took longer than {} s", terms_.build_limit.count()));
                          }};
  std::vector<cl_int> statuses;
  const BuildOutcome outcome = only_check ? executor_.check_program(order, &statuses) : executor_.build(order);
  Bytes body;
  wire::Writer writer{body};
  writer(statuses, outcome);
  std::vector<std::shared_ptr<KernelFacts>> kernels;
  for (const auto& name : outcome.executable ? outcome.kernel_names : std::vector<std::string>{}) {
    if (const auto facts = executor_.kernel_facts(order.program, name)) kernels.push_back(*facts);
  }
  writer(kernels.size());
  for (const auto& facts : kernels) {
    writer(*facts);
    const ObjectId kernel = new_own_id();  // a name for the time being
    const bool made = kernel && executor_.create_kernel(kernel, order.program, *facts) == CL_SUCCESS;
    if (!made) {
      writer(std::size_t{0});
      free_own_slot(kernel);
      continue;
    }
    writer(order.program_devices.size() * std::size(kGroupQueries));
    for (const ObjectId device : order.program_devices) {
      for (const cl_kernel_work_group_info query : kGroupQueries)
        writer(device.value(), query, executor_.kernel_group_info(kernel, device, query));
    }
    executor_.free(ObjectType::kernel, kernel);
    free_own_slot(kernel);
  }
  {
    const std::lock_guard lock{builds_mutex_};
    each_used(order, [&](ObjectType type, ObjectId id) { in_use_.erase(in_use_.find({type, id.value()})); });
  }
  send_message(Kind::answer, number, body, {});
}

void Session::handle_programs(const Head& head, Reader& reader) {
  switch (head.kind) {
    case Kind::check_program:
    case Kind::build: {
      BuildOrder order;
      reader(order);
      const bool is_new = !known(ObjectType::program).find(order.program);
      if (is_new) check_new(ObjectType::program, order.program);
      check(ObjectType::context, order.context);
      check_all(ObjectType::device, order.program_devices);
      check_all(ObjectType::device, order.devices);
      check_all(ObjectType::program, order.inputs);
      if (order.step > BuildOrder::Step::link || order.program_devices.empty()) throw BadMessage{"an odd build"};
      // It counts as made whether or not there is a program below: then nothing is freed there.
      if (is_new) create(ObjectType::program, order.program, CL_SUCCESS);
      {
        const std::lock_guard lock{builds_mutex_};
        each_used(order, [&](ObjectType type, ObjectId id) { in_use_.emplace(type, id.value()); });
      }
      return aside(head, [this, number = head.number, order, only_check = head.kind == Kind::check_program] {
        build(number, order, only_check);
      });
    }
    case Kind::program_binaries: {
      const auto program = reader.take<ObjectId>();
      check(ObjectType::program, program);
      return answer(head.number, executor_.program_binaries(program));
    }
    case Kind::device_identity: {
      const auto device = reader.take<ObjectId>();
      check(ObjectType::device, device);
      return answer(head.number, Result<std::string>{executor_.device_identity(device)});
    }
    case Kind::kernel_facts: {
      const auto program = reader.take<ObjectId>();
      const auto name = reader.take<std::string>();
      check(ObjectType::program, program);
      const auto facts = executor_.kernel_facts(program, name);
      return answer(head.number, facts ? CL_INVALID_KERNEL_NAME : facts.error());
    }
    case Kind::create_kernel: {
      const auto id = reader.take<ObjectId>();
      const auto program = reader.take<ObjectId>();
      KernelFacts facts;
      reader(facts.name);
      const auto count = reader.take<std::size_t>();
      if (count > 4096) throw BadMessage{"a kernel with too many arguments"};
      facts.arguments.resize(count);
      check_new(ObjectType::kernel, id);
      check(ObjectType::program, program);
      create(head, ObjectType::kernel, id, executor_.create_kernel(id, program, facts));
      kernels_[id.value()].arguments.resize(count);
      return;
    }
    case Kind::kernel_group_info: {
      const auto kernel = reader.take<ObjectId>();
      const auto device = reader.take<ObjectId>();
      const auto query = reader.take<cl_kernel_work_group_info>();
      check(ObjectType::device, device);
      if (const cl_int code = check(ObjectType::kernel, kernel); code != CL_SUCCESS) return answer(head.number, code);
      return answer(head.number, executor_.kernel_group_info(kernel, device, query));
    }
    case Kind::kernel_sub_group_info: {
      const auto kernel = reader.take<ObjectId>();
      const auto device = reader.take<ObjectId>();
      const auto query = reader.take<cl_kernel_sub_group_info>();
      const auto input = reader.take<Bytes>();
      const auto room = reader.take<std::size_t>();
      check(ObjectType::device, device);
      if (room > 4096) throw BadMessage{"too much room"};
      if (const cl_int code = check(ObjectType::kernel, kernel); code != CL_SUCCESS) return answer(head.number, code);
      return answer(head.number, executor_.kernel_sub_group_info(kernel, device, query, input, room));
    }
    case Kind::try_argument: {
      const auto kernel = reader.take<ObjectId>();
      const auto index = reader.take<cl_uint>();
      const auto size = reader.take<std::size_t>();
      const bool has_value = reader.take<bool>();
      if (const cl_int code = check(ObjectType::kernel, kernel); code != CL_SUCCESS) return answer(head.number, code);
      if (index >= kernels_[kernel.value()].arguments.size())
        throw BadMessage{"an argument that the kernel doesn't have"};
      if (has_value && size > kLargestValue) return answer(head.number, CL_INVALID_ARG_SIZE);
      const Bytes value(has_value ? size : 0);
      return answer(head.number, executor_.try_argument(kernel, index, size, has_value ? value.data() : nullptr));
    }
    default:
      throw BadMessage{"a message of no known kind"};
  }
}

}  // namespace grus::server
