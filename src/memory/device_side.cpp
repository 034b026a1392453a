#include "memory/device_side.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/log.hpp"
#include "command/gate.hpp"
#include "memory/fingerprint_kernels.hpp"

namespace grus::memory {
namespace {

constexpr std::size_t kLanes = 32;
constexpr std::size_t kBatch = 16384;                       // pages that go at a time
constexpr std::size_t kLargest = std::size_t{16} * kBatch;  // pages that are looked at at a time
constexpr std::size_t kFirstRead = 16 * 1024;               // of a list, with its length
constexpr cl_uint kIsZero = 0x80000000;

void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS) throw std::runtime_error{fmt::format("{} failed: OpenCL error {}", what, code)};
}

// Calls for each stretch of numbers that follow one another.
template <typename Call>
void each_run(std::span<const cl_uint> numbers, Call call) {
  for (std::size_t start = 0; start < numbers.size();) {
    std::size_t end = start + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    call(start, end - start);
    start = end;
  }
}

}  // namespace

DeviceSide::DeviceSide(Executor& executor, Context& context, ObjectId queue)
    : executor_{executor}, context_{context}, queue_{queue} {
  {
    const Gate::Entry entry{kInternalCall};
    program_ = Ref<Program>::adopt(slab<Program>().create(context));
  }
  Recipe recipe;
  recipe.source = kFingerprintKernels;
  BuildOrder order;
  order.program = program_->id();
  order.context = context.id();
  for (const auto& device : context.devices) order.program_devices.push_back(device->id());
  order.recipe = std::make_shared<const Recipe>(std::move(recipe));
  check(executor_.build(order).code, "building the fingerprints' program");
  fingerprint_ = make_kernel("fingerprint");
  gather_ = make_kernel("gather");
  scatter_ = make_kernel("scatter");
  staging_ = make_buffer(kBatch * kPage);
  gathered_ = make_buffer(kBatch * kPage);
  changed_ = make_buffer((1 + kLargest) * sizeof(cl_uint));
  indices_ = make_buffer(kBatch * sizeof(cl_uint));
  make_pinned();
}

std::unique_ptr<DeviceSide> DeviceSide::make(Executor& executor, Context& context, const Queue& queue) {
  try {
    return std::unique_ptr<DeviceSide>{new DeviceSide{executor, context, queue.id()}};
  } catch (const std::runtime_error& error) {
    log::info("move", "the host compares pages: {}", error.what());
    return nullptr;
  }
}

DeviceSide::~DeviceSide() {
  for (const Ref<Memory>* memory : {&staging_, &gathered_, &changed_, &indices_, &pinned_}) {
    if (*memory) executor_.free(ObjectType::memory, (*memory)->id());
  }
  for (const Ref<Kernel>* kernel : {&fingerprint_, &gather_, &scatter_}) {
    if (*kernel) executor_.free(ObjectType::kernel, (*kernel)->id());
  }
  executor_.free(ObjectType::program, program_->id());
  const Gate::Entry entry{kInternalCall};
  staging_ = gathered_ = changed_ = indices_ = pinned_ = {};
  fingerprint_ = gather_ = scatter_ = {};
  program_ = {};
}

Ref<Memory> DeviceSide::make_buffer(std::size_t size) {
  Ref<Memory> memory;
  {
    const Gate::Entry entry{kInternalCall};
    memory = Ref<Memory>::adopt(slab<Memory>().create(context_, CL_MEM_OBJECT_BUFFER));
  }
  NewBuffer order;
  order.id = memory->id();
  order.context = context_.id();
  order.flags = CL_MEM_READ_WRITE;
  order.size = size;
  check(executor_.create_buffer(order), "making a buffer for the copy");
  memory->size = size;
  return memory;
}

void DeviceSide::make_pinned() {
  constexpr std::size_t kSize = kBatch * kPage;
  {
    const Gate::Entry entry{kInternalCall};
    pinned_ = Ref<Memory>::adopt(slab<Memory>().create(context_, CL_MEM_OBJECT_BUFFER));
  }
  auto memory = executor_.host_memory_for(false, kSize);
  pinned_->take_host_memory(memory ? std::move(memory) : memory_in_pages(kSize));
  NewBuffer order;
  order.id = pinned_->id();
  order.context = context_.id();
  order.size = kSize;
  order.host = pinned_->host;
  order.host_memory = pinned_->host_memory;
  order.is_region = true;
  check(executor_.create_buffer(order), "registering memory for the copy");
}

Ref<Kernel> DeviceSide::make_kernel(const char* name) {
  auto facts = executor_.kernel_facts(program_->id(), name);
  if (!facts) check(facts.error(), "looking for a kernel");
  Ref<Kernel> kernel;
  {
    const Gate::Entry entry{kInternalCall};
    kernel = Ref<Kernel>::adopt(slab<Kernel>().create(*program_, *facts));
  }
  check(executor_.create_kernel(kernel->id(), program_->id(), **facts), "making a kernel");
  return kernel;
}

Argument DeviceSide::memory_argument(ObjectId memory) {
  Argument argument;
  argument.holds = Argument::Holds::memory;
  argument.object = memory;
  argument.stamp = ++stamp_;
  return argument;
}

Argument DeviceSide::value_argument(std::uint64_t value) {
  Argument argument;
  argument.holds = Argument::Holds::value;
  argument.value.assign(&value, sizeof value);
  argument.stamp = ++stamp_;
  return argument;
}

void DeviceSide::launch(const Kernel& kernel, std::vector<Argument> arguments, std::size_t groups) {
  const std::size_t local = kLanes;
  const std::size_t global = groups * kLanes;
  check(executor_.submit(command::Launch{kernel.id(), arguments, ++stamp_, 1, nullptr, &global, &local},
                         {.queue = queue_, .waits = {}, .event = {}}),
        "looking at pages");
}

void DeviceSide::read(ObjectId memory, Range range, void* to) {
  check(executor_.submit(command::Read{{memory}, range, to}, {queue_, {}, {}, Blocking::yes}), "reading memory");
}

void DeviceSide::write(ObjectId memory, Range range, const void* from) {
  check(executor_.submit(command::Write{{memory}, range, from}, {queue_, {}, {}, Blocking::yes}), "writing memory");
}

std::unique_ptr<DeviceTable> DeviceSide::make_table(std::size_t size) {
  auto table = std::make_unique<DeviceTable>();
  const std::size_t bytes = std::max<std::size_t>(size / kPage, 1) * kDeviceFingerprint;
  try {
    table->fingerprints = make_buffer(bytes);
  } catch (const std::runtime_error&) {
    return nullptr;
  }
  command::Fill fill{{table->fingerprints->id()}, {0, bytes}, {}};
  fill.pattern.bytes.fill(std::byte{0});
  fill.pattern.size = sizeof(cl_uint);
  check(executor_.submit(fill, {.queue = queue_, .waits = {}, .event = {}}), "clearing memory");
  return table;
}

void DeviceSide::free(DeviceTable& table) noexcept {
  executor_.free(ObjectType::memory, table.fingerprints->id());
  const Gate::Entry entry{kInternalCall};
  table.fingerprints = {};
}

// Numbers of pages, counted from the first, that are new or have changed; kIsZero is set for those of zeroes.
std::vector<cl_uint> DeviceSide::find_changed(ObjectId from, std::size_t first_there, DeviceTable& table,
                                              std::size_t first, std::size_t count) {
  command::Fill clear{{changed_->id()}, {0, sizeof(cl_uint)}, {}};
  clear.pattern.bytes.fill(std::byte{0});
  clear.pattern.size = sizeof(cl_uint);
  check(executor_.submit(clear, {.queue = queue_, .waits = {}, .event = {}}), "clearing memory");
  launch(*fingerprint_,
         {memory_argument(from), value_argument(first_there), memory_argument(table.fingerprints->id()),
          value_argument(first), memory_argument(changed_->id())},
         count);
  std::vector<cl_uint> list(1 + count);
  const std::size_t size = list.size() * sizeof(cl_uint);
  const std::size_t at_once = std::min(size, kFirstRead);
  read(changed_->id(), {0, at_once}, list.data());
  const std::size_t found = std::min<std::size_t>(list[0], count);
  const std::size_t needed = (1 + found) * sizeof(cl_uint);
  if (needed > at_once) read(changed_->id(), {at_once, needed - at_once}, list.data() + at_once / sizeof(cl_uint));
  list.erase(list.begin());
  list.resize(found);
  const auto number = [](cl_uint page) { return page & ~kIsZero; };
  std::sort(list.begin(), list.end(), [&](cl_uint a, cl_uint b) { return number(a) < number(b); });
  return list;
}

void DeviceSide::send_whole(Executor& to, ObjectId from, std::size_t offset_there, ObjectId buffer, Range range) {
  for (std::size_t done = 0; done < range.size; done += kBatch * kPage) {
    const std::size_t size = std::min(range.size - done, kBatch * kPage);
    read(from, {offset_there + done, size}, pinned_->host);
    check(to.submit(command::Write{{buffer}, {range.offset + done, size}, pinned_->host},
                    {queue_, {}, {}, Blocking::yes}),
          "writing memory");
  }
}

void DeviceSide::send(Executor& to, DeviceSide* there, ObjectId from, std::size_t first_there, ObjectId buffer,
                      std::size_t first, std::span<const cl_uint> pages) {
  for (std::size_t done = 0; done < pages.size(); done += kBatch) {
    const auto batch = pages.subspan(done, std::min(kBatch, pages.size() - done));
    write(indices_->id(), {0, batch.size_bytes()}, batch.data());
    launch(*gather_,
           {memory_argument(from), value_argument(first_there), memory_argument(indices_->id()),
            memory_argument(gathered_->id())},
           batch.size());
    read(gathered_->id(), {0, batch.size() * kPage}, pinned_->host);
    if (there) {
      there->write(there->gathered_->id(), {0, batch.size() * kPage}, pinned_->host);
      there->write(there->indices_->id(), {0, batch.size_bytes()}, batch.data());
      there->launch(*there->scatter_,
                    {there->memory_argument(there->gathered_->id()), there->memory_argument(there->indices_->id()),
                     there->memory_argument(buffer), there->value_argument(first)},
                    batch.size());
      continue;
    }
    each_run(batch, [&](std::size_t start, std::size_t count) {
      const Range range{(first + batch[start]) * kPage, count * kPage};
      check(to.submit(command::Write{{buffer}, range, pinned_->host + start * kPage}, {queue_, {}, {}, Blocking::yes}),
            "writing memory");
    });
  }
}

void DeviceSide::copy(Executor& to, DeviceSide* there, ObjectId buffer, std::size_t size, DeviceTable& table,
                      Source source, const OnCopied& on_copied) {
  const std::size_t pages = size / kPage;
  const std::size_t most = source == Source::runs ? kBatch : kLargest;
  for (std::size_t first = 0; first < pages; first += most) {
    const std::size_t count = std::min(most, pages - first);
    ObjectId from = buffer;
    std::size_t first_there = first;
    if (source == Source::runs) {
      const command::Copy copy{{buffer, staging_->id()}, first * kPage, 0, count * kPage};
      check(executor_.submit(copy, {.queue = queue_, .waits = {}, .event = {}}), "copying memory on the device");
      from = staging_->id();
      first_there = 0;
    }
    std::vector<cl_uint> changed = find_changed(from, first_there, table, first, count);
    std::vector<cl_uint> zero;
    for (const cl_uint page : changed) {
      if (page & kIsZero) zero.push_back(page & ~kIsZero);
    }
    std::erase_if(changed, [](cl_uint page) { return (page & kIsZero) != 0; });
    if (changed.size() == count) {
      send_whole(to, from, first_there * kPage, buffer, {first * kPage, count * kPage});
    } else {
      send(to, there, from, first_there, buffer, first, changed);
    }
    each_run(zero, [&](std::size_t start, std::size_t length) {
      command::Fill fill{{buffer}, {(first + zero[start]) * kPage, length * kPage}, {}};
      fill.pattern.bytes.fill(std::byte{0});
      fill.pattern.size = sizeof(cl_uint);
      check(to.submit(fill, {.queue = queue_, .waits = {}, .event = {}}), "clearing memory");
    });
    on_copied({.read = count * kPage, .sent = changed.size() * kPage, .zero = zero.size() * kPage});
  }
  // Less than a page is always sent.
  if (const std::size_t rest = size % kPage; rest != 0) {
    send_whole(to, buffer, size - rest, buffer, {size - rest, rest});
    on_copied({.read = rest, .sent = rest});
  }
}

}  // namespace grus::memory
