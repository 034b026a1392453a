#include "memory/device_side.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/log.hpp"
#include "command/gate.hpp"
#include "memory/direct_path.hpp"
#include "memory/fingerprint_kernels.hpp"

namespace grus::memory {
namespace {

constexpr std::size_t kLanes = 32;
// Pages that are looked at at a time; fewer where they are copied first.
constexpr std::size_t kMost = std::size_t{1} << 18;
constexpr std::size_t kMostCopied = std::size_t{1} << 14;
constexpr std::size_t kBatch = kSlotSize / kPage;  // that are put together
constexpr std::size_t kMostLanes = 8;
constexpr std::size_t kLookingLanes = 4;       // of them; what the others have found is put together, and read
constexpr std::size_t kLentLanes = 3;          // of the others, while they are read
constexpr std::size_t kPartOfMemory = 1 << 6;  // of the device's, for all lanes
constexpr std::size_t size_of_list(std::size_t pages) { return (1 + pages) * sizeof(cl_uint); }
// Of a list, with its length: all of it where pages are copied first.
constexpr std::size_t kFirstRead = size_of_list(kMostCopied);
constexpr cl_uint kIsZero = 0x80000000;

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

// Past this process if that works, else through it. Whether it went past.
template <typename Send>
bool send_by_best_way(Route route, Send send) {
  if (route.direct && route.direct->why_lost().empty()) {
    try {
      send(route);
      return true;
    } catch (const PathLost&) {  // what it says is told by who asked for the way
    }
  }
  route.direct = nullptr;
  send(route);
  return false;
}

}  // namespace

DeviceSide::DeviceSide(Executor& executor, Context& context) : executor_{executor}, context_{context} {
  const Gate::Entry entry{kInternalCall};
  program_ = Ref<Program>::adopt(slab<Program>().create(context));
}

void DeviceSide::set_up(Role role) {
  Recipe recipe;
  recipe.source = kFingerprintKernels;
  program_->devices = context_.devices;
  BuildOrder order = order_for(*program_);
  order.recipe = std::make_shared<const Recipe>(std::move(recipe));
  const BuildOutcome outcome = executor_.build(order);
  is_program_there_ = outcome.created;
  check(outcome.code, "building the fingerprints' program");
  fingerprint_ = make_kernel("fingerprint");
  gather_ = make_kernel("gather");
  scatter_ = make_kernel("scatter");
  lanes_.resize(lanes_for(role));
  if (role == Role::source)
    lists_.emplace(context_, memory_in_pages(lanes_.size() * kFirstRead), std::initializer_list<Executor*>{&executor_});
  for (Lane& lane : lanes_) {
    lane.queue = make_queue();
    lane.gathered = make_buffer(kBatch * kPage);
    lane.indices = make_buffer(kBatch * sizeof(cl_uint));
    if (role == Role::destination) continue;
    lane.staging = make_buffer(kMostCopied * kPage);
    lane.changed = make_buffer(size_of_list(kMost));
    lane.list = lists_->data() + (&lane - lanes_.data()) * kFirstRead;
  }
}

std::size_t DeviceSide::lanes_for(Role role) const {
  if (role == Role::destination) return kMostLanes;
  const auto bytes = executor_.device_info(context_.devices[0]->id(), CL_DEVICE_GLOBAL_MEM_SIZE);
  const cl_ulong memory = bytes ? from_bytes<cl_ulong>(*bytes) : 0;
  return std::clamp<std::size_t>(memory / kPartOfMemory / ((kMostCopied + kBatch) * kPage), 2, kMostLanes);
}

std::unique_ptr<DeviceSide> DeviceSide::make(Executor& executor, Context& context, Role role) {
  std::unique_ptr<DeviceSide> side{new DeviceSide{executor, context}};
  try {
    side->set_up(role);
    return side;
  } catch (const std::runtime_error& error) {
    log::info("move", "the host compares pages: {}", error.what());
    return nullptr;
  }
}

DeviceSide::~DeviceSide() {
  for (const Look& look : looks_) executor_.finish(look.lane->queue->id());  // which may still write to a list
  for (const Lane& lane : lanes_) {
    for (const Ref<Memory>* memory : {&lane.staging, &lane.gathered, &lane.changed, &lane.indices}) {
      if (*memory) executor_.free(ObjectType::memory, (*memory)->id());
    }
    if (lane.queue) executor_.free(ObjectType::queue, lane.queue->id());
  }
  for (const Ref<Kernel>* kernel : {&fingerprint_, &gather_, &scatter_}) {
    if (*kernel) executor_.free(ObjectType::kernel, (*kernel)->id());
  }
  if (is_program_there_) executor_.free(ObjectType::program, program_->id());
  const Gate::Entry entry{kInternalCall};
  lanes_.clear();
  fingerprint_ = gather_ = scatter_ = {};
  program_ = {};
}

Ref<Queue> DeviceSide::make_queue() {
  Ref<Queue> queue;
  {
    const Gate::Entry entry{kInternalCall};
    queue = Ref<Queue>::adopt(slab<Queue>().create(context_, *context_.devices[0]));
  }
  constexpr std::array<cl_queue_properties, 2> kOwn{kOwnQueue, 1};
  check(executor_.create_queue(queue->id(), context_.id(), context_.devices[0]->id(), kOwn),
        "making a queue for the copy");
  return queue;
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

void DeviceSide::launch(const Lane& lane, const Kernel& kernel, std::vector<Argument> arguments, std::size_t groups) {
  const std::size_t local = kLanes;
  const std::size_t global = groups * kLanes;
  check(executor_.submit(command::Launch{kernel.id(), arguments, ++stamp_, 1, nullptr, &global, &local},
                         {.queue = lane.queue->id(), .waits = {}, .event = {}}),
        "looking at pages");
}

void DeviceSide::read(const Lane& lane, ObjectId memory, Range range, void* to, Blocking blocking) {
  check(executor_.submit(command::Read{{memory}, range, to}, {lane.queue->id(), {}, {}, blocking}), "reading memory");
}

void DeviceSide::write(const Lane& lane, ObjectId memory, Range range, const void* from, Blocking blocking) {
  check(executor_.submit(command::Write{{memory}, range, from}, {lane.queue->id(), {}, {}, blocking}),
        "writing memory");
}

void DeviceSide::clear(const Lane& lane, ObjectId memory, std::size_t size) {
  check(executor_.submit(zeroes(memory, {0, size}), {.queue = lane.queue->id(), .waits = {}, .event = {}}),
        "clearing memory");
}

std::unique_ptr<DeviceTable> DeviceSide::make_table(std::size_t size) {
  auto table = std::make_unique<DeviceTable>();
  const std::size_t bytes = std::max<std::size_t>(size / kPage, 1) * kDeviceFingerprint;
  try {
    table->fingerprints = make_buffer(bytes);
  } catch (const std::runtime_error&) {
    return nullptr;
  }
  // By the lane that looks at it first. Others must wait for that.
  clear(lanes_[turn_], table->fingerprints->id(), bytes);
  if (size > kMostCopied * kPage) check(executor_.finish(lanes_[turn_].queue->id()), "clearing memory");
  return table;
}

void DeviceSide::free(DeviceTable& table) noexcept {
  executor_.free(ObjectType::memory, table.fingerprints->id());
  const Gate::Entry entry{kInternalCall};
  table.fingerprints = {};
}

DeviceSide::Look DeviceSide::begin(const Lane& lane, const Buffer& buffer, std::size_t first, std::size_t count) {
  Look look{&lane, buffer, first, count, buffer.id, first};
  if (buffer.source == Source::runs) {
    const command::Copy copy{{buffer.id, lane.staging->id()}, first * kPage, 0, count * kPage};
    check(executor_.submit(copy, {.queue = lane.queue->id(), .waits = {}, .event = {}}),
          "copying memory on the device");
    look.from = lane.staging->id();
    look.first_there = 0;
  }
  clear(lane, lane.changed->id(), sizeof(cl_uint));
  launch(
      lane, *fingerprint_,
      {memory_argument(look.from), value_argument(look.first_there), memory_argument(buffer.table->fingerprints->id()),
       value_argument(first), memory_argument(lane.changed->id())},
      count);
  read(lane, lane.changed->id(), {0, std::min(size_of_list(count), kFirstRead)}, lane.list, Blocking::no);
  check(executor_.flush(lane.queue->id()), "looking at pages");
  return look;
}

DeviceSide::Changed DeviceSide::changed_pages(const Look& look) {
  const Lane& lane = *look.lane;
  check(executor_.finish(lane.queue->id()), "looking at pages");
  const std::size_t at_once = std::min(size_of_list(look.count), kFirstRead);
  std::vector<cl_uint> list(1 + look.count);
  std::memcpy(list.data(), lane.list, at_once);
  const std::size_t found = std::min<std::size_t>(list[0], look.count);
  if (const std::size_t needed = size_of_list(found); needed > at_once)
    read(lane, lane.changed->id(), {at_once, needed - at_once}, list.data() + at_once / sizeof(cl_uint));
  // They come in any order.
  enum class Now : std::uint8_t { unchanged, changed, zero };
  std::vector<Now> kinds(look.count);
  for (std::size_t next = 1; next <= found; ++next)
    kinds.at(list[next] & ~kIsZero) = (list[next] & kIsZero) != 0 ? Now::zero : Now::changed;
  Changed changed;
  for (cl_uint page = 0; page < look.count; ++page) {
    if (kinds[page] != Now::unchanged) (kinds[page] == Now::zero ? changed.zero : changed.pages).push_back(page);
  }
  return changed;
}

void DeviceSide::send_whole(const Lane& lane, ObjectId from, std::size_t offset_there, const Route& route,
                            ObjectId buffer, Range range) {
  if (route.direct)
    return route.direct->forward({lane.queue->id(), from, offset_there}, {route.queue, buffer, range.offset},
                                 range.size);
  if (const auto contents = route.to.contents_of(buffer)) {
    const auto copy = [this, &lane, from, there = Range{offset_there, range.size}, contents, offset = range.offset] {
      read(lane, from, there, contents->data() + offset);
    };
    // Two threads read, the other one only what stays as it is: the lane's own copy, until the lane is needed again.
    if (from == buffer || !route.conveyor.has_room()) return copy();
    lent_[&lane] = route.conveyor.hand_over({copy});
    return;
  }
  for (std::size_t done = 0; done < range.size; done += kSlotSize) {
    const Range part{range.offset + done, std::min(range.size - done, kSlotSize)};
    std::byte* const host = route.conveyor.take();
    read(lane, from, {offset_there + done, part.size}, host);
    route.conveyor.hand_over({[&to = route.to, queue = route.queue, buffer, part, host] {
      check(to.submit(command::Write{{buffer}, part, host}, {queue, {}, {}, Blocking::yes}), "writing memory");
    }});
  }
}

// At the destination, on the thread that writes. It only begins: the device may have much else to do.
const DeviceSide::Lane& DeviceSide::scatter(const std::byte* pages, std::span<const cl_uint> numbers, ObjectId buffer,
                                            std::size_t first) {
  const Lane& lane = next_lane();
  write(lane, lane.gathered->id(), {0, numbers.size() * kPage}, pages, Blocking::no);
  scatter_gathered(lane, numbers, buffer, first);
  return lane;
}

const DeviceSide::Lane& DeviceSide::next_lane() { return lanes_[std::exchange(turn_, (turn_ + 1) % lanes_.size())]; }

// What is put together in the lane's memory.
void DeviceSide::scatter_gathered(const Lane& lane, std::span<const cl_uint> numbers, ObjectId buffer,
                                  std::size_t first) {
  write(lane, lane.indices->id(), {0, numbers.size_bytes()}, numbers.data(), Blocking::no);
  launch(lane, *scatter_,
         {memory_argument(lane.gathered->id()), memory_argument(lane.indices->id()), memory_argument(buffer),
          value_argument(first)},
         numbers.size());
  check(executor_.flush(lane.queue->id()), "writing memory");
}

// The next of the pages that changed are put together; answers which.
std::span<const cl_uint> DeviceSide::gather(const Look& look, std::size_t done) {
  const Lane& lane = *look.lane;
  const std::span<const cl_uint> all = look.changed->pages;
  const auto batch = all.subspan(done, std::min(kBatch, all.size() - done));
  write(lane, lane.indices->id(), {0, batch.size_bytes()}, batch.data(), Blocking::yes);
  launch(lane, *gather_,
         {memory_argument(look.from), value_argument(look.first_there), memory_argument(lane.indices->id()),
          memory_argument(lane.gathered->id())},
         batch.size());
  check(executor_.flush(lane.queue->id()), "looking at pages");
  return batch;
}

// Waits for what the lane found; the first of it is put together meanwhile.
void DeviceSide::end(Look& look) {
  if (look.changed) return;
  look.changed = changed_pages(look);
  const std::size_t changed = look.changed->pages.size();
  if (changed != 0 && changed != look.count) gather(look, 0);
}

void DeviceSide::send_some(const Look& look, const Route& route, DeviceSide* there) {
  const Lane& lane = *look.lane;
  const std::span<const cl_uint> all = look.changed->pages;
  for (std::size_t done = 0; done < all.size(); done += kBatch) {
    const auto pages = done == 0 ? all.first(std::min(kBatch, all.size())) : gather(look, done);
    if (route.direct && there) {
      const Lane& lane_there = there->next_lane();
      route.direct->forward({lane.queue->id(), lane.gathered->id()},
                            {lane_there.queue->id(), lane_there.gathered->id()}, pages.size() * kPage);
      there->scatter_gathered(lane_there, pages, look.buffer.id, look.first);
      there->scatters_ = true;
      continue;
    }
    std::byte* const host = route.conveyor.take();
    read(lane, lane.gathered->id(), {0, pages.size() * kPage}, host);
    route.conveyor.hand_over(write_job(look, route, there, host, {pages.begin(), pages.end()}));
  }
}

Conveyor::Job DeviceSide::write_job(const Look& look, const Route& route, DeviceSide* there, const std::byte* host,
                                    std::vector<cl_uint> pages) {
  const auto batch = std::make_shared<const std::vector<cl_uint>>(std::move(pages));
  const ObjectId buffer = look.buffer.id;
  const std::size_t first = look.first;
  if (there) {
    const auto lane = std::make_shared<const Lane*>(nullptr);
    return {[=] { *lane = &there->scatter(host, *batch, buffer, first); },
            [=] {
              if (*lane) check(there->executor_.finish((*lane)->queue->id()), "writing memory");
            }};
  }
  return {[=, &to = route.to, queue = route.queue] {
    each_run(*batch, [&](std::size_t start, std::size_t count) {
      const Range range{(first + (*batch)[start]) * kPage, count * kPage};
      check(to.submit(command::Write{{buffer}, range, host + start * kPage}, {queue, {}, {}, Blocking::yes}),
            "writing memory");
    });
  }};
}

void DeviceSide::send_changed(const Look& look, const Route& route, DeviceSide* there) {
  if (look.changed->pages.size() == look.count) {
    send_whole(*look.lane, look.from, look.first_there * kPage, route, look.buffer.id,
               {look.first * kPage, look.count * kPage});
  } else {
    send_some(look, route, there);
  }
}

void DeviceSide::send_first(const Route& route, DeviceSide* there, const OnCopied& on_copied) {
  Look look = std::move(looks_.front());
  looks_.pop_front();
  end(look);
  const auto& [changed, zero] = *look.changed;
  bool is_gathered = true;
  const bool is_direct = send_by_best_way(route, [&, &changed = changed](const Route& way) {
    if (!std::exchange(is_gathered, false) && changed.size() != look.count) gather(look, 0);
    send_changed(look, way, there);
  });
  each_run(zero, [&, &zero = zero](std::size_t start, std::size_t length) {
    const Range range{(look.first + zero[start]) * kPage, length * kPage};
    check(route.to.submit(zeroes(look.buffer.id, range), {.queue = route.queue, .waits = {}, .event = {}}),
          "clearing memory");
  });
  on_copied({.read = look.count * kPage,
             .sent = changed.size() * kPage,
             .zero = zero.size() * kPage,
             .direct = is_direct && (there || changed.size() == look.count) ? changed.size() * kPage : 0});
}

void DeviceSide::copy(const Route& route, DeviceSide* there, const Buffer& buffer, Range range,
                      const OnCopied& on_copied) {
  const std::size_t pages_end = (range.offset + range.size) / kPage;
  const std::size_t most = buffer.source == Source::runs ? kMostCopied : kMost;
  std::size_t most_looks = lanes_.size();
  if (!route.to.has_device()) most_looks = std::max(most_looks, kLentLanes + 1) - kLentLanes;
  for (std::size_t first = range.offset / kPage; first < pages_end; first += most) {
    if (looks_.size() == most_looks) send_first(route, there, on_copied);
    const Lane& lane = lanes_[turn_];
    if (const auto lent = lent_.extract(&lane); !lent.empty()) route.conveyor.wait_for(lent.mapped());
    looks_.push_back(begin(lane, buffer, first, std::min(most, pages_end - first)));
    turn_ = (turn_ + 1) % lanes_.size();
    if (looks_.size() > kLookingLanes) end(looks_[looks_.size() - 1 - kLookingLanes]);
  }
  // Less than a page is always sent.
  if (const std::size_t rest = (range.offset + range.size) % kPage; rest != 0) {
    const bool is_direct = send_by_best_way(route, [&](const Route& way) {
      send_whole(lanes_[0], buffer.id, buffer.size - rest, way, buffer.id, {buffer.size - rest, rest});
    });
    on_copied({.read = rest, .sent = rest, .direct = is_direct ? rest : 0});
  }
}

void DeviceSide::finish(const Route& route, DeviceSide* there, const OnCopied& on_copied) {
  for (Look& look : looks_) end(look);
  while (!looks_.empty()) send_first(route, there, on_copied);
  if (!there || !std::exchange(there->scatters_, false)) return;
  for (const Lane& lane : there->lanes_) check(there->executor_.finish(lane.queue->id()), "writing memory");
}

}  // namespace grus::memory
