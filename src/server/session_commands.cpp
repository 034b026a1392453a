// Session: commands.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "server/session.hpp"

namespace grus::server {

using channel::Head;
using channel::Kind;
using wire::BadMessage;
using wire::Reader;

namespace {

constexpr std::size_t kMostHeld = std::size_t{256} << 20;  // bytes of transfers
constexpr std::size_t kLargestImage = std::size_t{16} << 30;
constexpr std::size_t kFlushFrom = 64 * 1024;  // larger writes are begun at once
constexpr std::size_t kSmall = 32 * 1024;
constexpr std::size_t kManySmall = std::size_t{1} << 20;
constexpr std::size_t kMostSmall = 64;

}  // namespace

Session::Place Session::read_place(Reader& reader) {
  for (const ObjectId event : past_clears_) free_own_event(event);
  past_clears_.clear();
  Place place;
  reader(place.queue, place.event, place.blocking, waits_);
  place.waits = waits_;
  check(ObjectType::queue, place.queue);
  if (place.event) check_new(ObjectType::event, place.event);
  for (const ObjectId wait : place.waits) {
    if (check(ObjectType::event, wait) != CL_SUCCESS) place.code = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
  }
  return place;
}

// An error of a command that nobody waits for is kept: its event has it, and the next to wait for its queue.
void Session::note_result(const Place& place, cl_int code) {
  ++queues_[place.queue.value()]->last;
  if (place.event) create(ObjectType::event, place.event, code);
  if (code == CL_SUCCESS) return;
  const std::lock_guard lock{errors_mutex_};
  queue_errors_.emplace(place.queue.value(), code);
}

template <typename Command>
cl_int Session::check_memories(const Command& command) {
  cl_int failed = CL_SUCCESS;
  command.each_memory([&](ObjectId id) {
    if (const cl_int code = check(ObjectType::memory, id); code != CL_SUCCESS) failed = code;
  });
  return failed;
}

template <typename Command>
void Session::note_result_of(const Command& command, const Place& place, cl_int code) {
  note_result(place, code);
  if constexpr (requires { command.range; }) {
    if (place.goes_on && code == CL_SUCCESS) note_written(command.memory, command.range, place.queue);
  }
}

// Once all of them are known to be there.
template <typename Command>
cl_int Session::prepare(const Command& command, Place& place, Residency::Lock& use) {
  cl_int failed = CL_SUCCESS;
  if (residency_.is_on()) {
    used_.clear();
    command.each_memory([this](ObjectId id) { used_.push_back(id); });
    failed = residency_.use(used_, use);
  }
  if constexpr (std::is_same_v<Command, command::Write> || std::is_same_v<Command, command::Fill>) {
    // What waits for others may never happen.
    place.goes_on = place.waits.empty() && goes_on(command.memory, command.range, place.queue);
    if (place.goes_on) return failed;
  }
  command.each_memory([&](ObjectId id) {
    if (failed == CL_SUCCESS) failed = clear_before(id, place);
  });
  return failed;
}

void Session::check_range(ObjectId memory, std::size_t offset, std::size_t size) const {
  const std::size_t all = memories_.at(memory.value()).size;
  if (size > all || offset > all - size) throw BadMessage{"a range beyond its object"};
}

// Of memories that are there.
template <typename Command>
void Session::check_ranges(const Command& command) const {
  if constexpr (requires { command.range; }) check_range(command.memory, command.range.offset, command.range.size);
  if constexpr (std::is_same_v<Command, command::Copy>) {
    check_range(command.from, command.from_offset, command.size);
    check_range(command.to, command.to_offset, command.size);
  }
}

template <std::size_t kIndex>
void Session::handle_command_from(const Head& head, Reader& reader) {
  if constexpr (kIndex == std::tuple_size_v<channel::Commands>) {
    throw BadMessage{"a message of no known kind"};
  } else {
    using Command = std::tuple_element_t<kIndex, channel::Commands>;
    if (head.kind != channel::kind_of<Command>()) return handle_command_from<kIndex + 1>(head, reader);
    if constexpr (std::is_same_v<Command, command::Launch>) {
      launch(head, reader);
    } else if constexpr (requires(Command command) { command.pointer; }) {
      map<Command>(reader);
    } else if constexpr (requires(Command command) { command.to = static_cast<void*>(nullptr); }) {
      read<Command>(head, reader);
    } else if constexpr (requires(Command command) { command.from = static_cast<const void*>(nullptr); }) {
      write<Command>(head, reader);
    } else {
      carry_out<Command>(head, reader);
    }
  }
}

template <typename Command>
void Session::carry_out(const Head&, Reader& reader) {
  Place place = read_place(reader);
  Command command;
  std::vector<ObjectId> memories;
  if constexpr (std::is_same_v<Command, command::Migrate>) {
    reader(memories, command.flags);
    command.memories = memories;
  } else {
    reader(command);
  }
  if constexpr (std::is_same_v<Command, command::Fill>) {
    if (command.pattern.size > command.pattern.bytes.size()) throw BadMessage{"a pattern that is too long"};
  }
  cl_int code = check_memories(command);
  check_ranges(command);
  if (code == CL_SUCCESS) code = place.code;
  Residency::Lock use;
  if (code == CL_SUCCESS) code = prepare(command, place, use);
  if (code == CL_SUCCESS) code = executor_.submit(command, {place.queue, place.waits, place.event, Blocking::no});
  note_result_of(command, place, code);
}

namespace {

std::size_t product(std::initializer_list<std::size_t> factors) {
  std::size_t all = 1;
  for (const std::size_t factor : factors) {
    if (__builtin_mul_overflow(all, factor, &all)) throw BadMessage{"a region larger than any memory"};
  }
  return all;
}

// On the wire the program's side is packed.
std::size_t pack(command::Rectangle& r) {
  const std::size_t size = product({r.region[0], r.region[1], r.region[2]});
  r.host_origin = {};
  r.host_row_pitch = r.region[0];
  r.host_slice_pitch = r.region[0] * r.region[1];
  return size;
}

template <typename Command, typename Memory>
std::size_t packed_size(Command& command, const Memory& memory) {
  if constexpr (requires { command.range; }) {
    return command.range.size;
  } else if constexpr (requires { command.rectangle; }) {
    return pack(command.rectangle);
  } else {
    const Triple& region = command.where.region;
    const std::size_t size = product({region[0], region[1], region[2], memory.element_size});
    command.row_pitch = region[0] * memory.element_size;
    // Of a one-dimensional array the second number counts slices.
    command.slice_pitch = memory.type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? command.row_pitch
                          : memory.type == CL_MEM_OBJECT_IMAGE3D || memory.type == CL_MEM_OBJECT_IMAGE2D_ARRAY
                              ? command.row_pitch * region[1]
                              : 0;
    return size;
  }
}

}  // namespace

template <typename Command>
Session::Transfer<Command> Session::read_transfer(Reader& reader) {
  Transfer<Command> transfer{read_place(reader)};
  reader(transfer.command);
  transfer.code = check_memories(transfer.command);
  check_ranges(transfer.command);
  if (transfer.code == CL_SUCCESS) transfer.code = transfer.place.code;
  if (transfer.code == CL_SUCCESS) transfer.code = prepare(transfer.command, transfer.place, transfer.use);
  const Memory& memory = memories_[transfer.command.memory.value()];
  transfer.size = packed_size(transfer.command, memory);
  if (transfer.size > memory.size) throw BadMessage{"more data than the object has"};
  transfer.shared = shared_at(reader.take<std::uint64_t>(), transfer.size);
  note_bulk_use(memory.context, transfer.size);
  if (transfer.shared) {
    constexpr bool kReads = requires(Command command) { command.to = static_cast<void*>(nullptr); };
    Counters::add(kReads ? counters_.bytes_shared : counters_.bytes_in, transfer.size);
  }
  return transfer;
}

// Of an object that lives in shared memory. The client waits for it, if it does, with a message of its own.
template <typename Map>
void Session::map(Reader& reader) {
  Place place = read_place(reader);
  Map map;
  reader(map);
  map.pointer = shared_at(reader.take<std::uint64_t>(), 1);
  cl_int code = check_memories(map);
  check_ranges(map);
  if (code == CL_SUCCESS) code = place.code;
  Residency::Lock use;
  if (code == CL_SUCCESS) code = prepare(map, place, use);
  if (code == CL_SUCCESS) code = executor_.submit(map, {place.queue, place.waits, place.event, Blocking::no});
  note_result(place, code);
}

template <typename Command>
void Session::read(const Head& head, Reader& reader) {
  auto transfer = read_transfer<Command>(reader);
  const Place& place = transfer.place;
  Command& command = transfer.command;
  const std::size_t size = transfer.size;
  cl_int code = transfer.code;
  const Number number = head.number;
  const auto fail = [&] {
    note_result(place, code);
    answer(number, code);
  };
  if (code != CL_SUCCESS) return fail();
  const bool is_waited_for = place.blocking == Blocking::yes && head.crowd == channel::Crowd::no;
  Queue& queue = *queues_[place.queue.value()];
  if (std::byte* const from = is_waited_for && queue.in_order ? place_in_object(transfer) : nullptr) {
    code = executor_.finish(place.queue);
    if (code != CL_SUCCESS) return fail();
    queue.is_done(queue.last);
    mark_done(place);
    send_output();
    return send(Kind::answer, number, {from, size}, code);
  }
  if constexpr (std::is_same_v<Command, command::Read>) {
    if (is_waited_for && goes_in_parts(transfer)) return read_in_parts(number, transfer);
  }
  if (is_waited_for) {
    if (!transfer.shared && size > scratch_size_) {
      scratch_ = allocate(size);
      scratch_size_ = scratch_ ? size : 0;
      if (!scratch_) code = CL_OUT_OF_HOST_MEMORY;
      if (code != CL_SUCCESS) return fail();
    }
    command.to = transfer.shared ? transfer.shared : scratch_.get();
    code = executor_.submit(command, {place.queue, place.waits, place.event, Blocking::yes});
    if (code != CL_SUCCESS) return fail();
    note_result(place, code);
    if (queue.in_order) queue.is_done(queue.last);
    send_output();
    return send(Kind::answer, number, {scratch_.get(), transfer.shared ? 0 : size}, code);
  }
  const std::size_t held = transfer.shared ? 0 : size;
  hold(held);
  const Data data = transfer.shared ? nullptr : allocate(size);
  command.to = transfer.shared ? transfer.shared : data.get();
  const ObjectId own = place.event || !command.to ? ObjectId{} : new_own_id();
  const ObjectId event = own ? own : place.event;
  code = command.to ? executor_.submit(command, {place.queue, place.waits, event, event ? Blocking::no : Blocking::yes})
                    : CL_OUT_OF_HOST_MEMORY;
  if (code != CL_SUCCESS) {
    free_own_slot(own);
    let_go(held);
    return fail();
  }
  note_result(place, code);
  when_done(place.queue, event, own, [this, number, data, size, held](cl_int status) {
    send_output();
    send(Kind::answer, number, {data.get(), data && status == CL_COMPLETE ? size : 0}, status);
    let_go(held);
  });
  executor_.flush(place.queue);
}

// Calls, on a thread of the session's, when a command is done whose event is the client's or the session's own. Drivers
// may take milliseconds to call back; what only the session knows of can be waited for instead.
void Session::when_done(ObjectId queue, ObjectId event, ObjectId own, std::function<void(cl_int)> call) {
  if (own) {
    return queues_[queue.value()]->waiter.run([this, own, call = std::move(call)] {
      const cl_int code = executor_.wait({&own, 1});
      free_own_event(own);
      call(code == CL_SUCCESS ? CL_COMPLETE : code);
    });
  }
  const auto done = [this, call](cl_int status) { post([call, status] { call(status); }); };
  if (event && executor_.when_event(event, CL_COMPLETE, done) == CL_SUCCESS) return;
  if (event) executor_.finish(queue);
  call(CL_COMPLETE);
}

// What comes over a network for a device with memory of its own goes through memory that its driver knows, one part
// after the other.
template <typename Command>
bool Session::goes_in_parts(const Transfer<Command>& transfer) const {
  const Queue& queue = *queues_.at(transfer.place.queue.value());
  return own_bulk_ && !transfer.shared && transfer.code == CL_SUCCESS && transfer.size > kPart && queue.in_order &&
         !(transfer.place.event && queue.is_profiled);
}

// The next part's memory, once the device is done with what was there.
std::byte* Session::next_part() {
  const std::size_t index = part_++ % kParts;
  if (ObjectId& busy = part_events_[index]; busy) {
    executor_.wait({&busy, 1});
    free_own_event(busy);
    busy = {};
  }
  return own_bulk_->data() + index * kPart;
}

// The event of the part that next_part() gave last.
ObjectId Session::new_part_event() { return part_events_[(part_ - 1) % kParts] = new_own_id(); }

void Session::forget_part_event() {
  ObjectId& event = part_events_[(part_ - 1) % kParts];
  free_own_slot(event);
  event = {};
}

void Session::write_in_parts(const Transfer<command::Write>& transfer) {
  const Place& place = transfer.place;
  command::Write part = transfer.command;
  cl_int code = CL_SUCCESS;
  for (std::size_t done = 0; done < transfer.size; done += part.range.size) {
    part.range = {transfer.command.range.offset + done, std::min(kPart, transfer.size - done)};
    std::byte* const memory = next_part();
    input_.read(memory, part.range.size);
    part.from = memory;
    if (code != CL_SUCCESS) continue;
    const ObjectId event = new_part_event();
    const std::span<const ObjectId> waits = done == 0 ? place.waits : std::span<const ObjectId>{};
    code = executor_.submit(part, {place.queue, waits, event, event ? Blocking::no : Blocking::yes});
    if (code != CL_SUCCESS) forget_part_event();
    executor_.flush(place.queue);
  }
  if (code == CL_SUCCESS && place.event)
    code = executor_.submit(command::Marker{}, {place.queue, {}, place.event, Blocking::no});
  note_result_of(transfer.command, place, code);
}

// One part is read while the one before is sent. Once the answer has begun it can't become an error any more.
void Session::read_in_parts(Number number, const Transfer<command::Read>& transfer) {
  const Place& place = transfer.place;
  command::Read part = transfer.command;
  std::byte* read = nullptr;  // and sent next
  std::size_t read_size = 0;
  ObjectId read_event;
  Bytes body;
  wire::Writer{body}(cl_int{CL_SUCCESS});
  const std::lock_guard lock{out_mutex_};
  Head head{static_cast<std::uint32_t>(body.size()),
            Kind::answer,
            channel::Crowd::no,
            number,
            transfer.size,
            goes_in_blocks(transfer.size)};
  Counters::add(counters_.bytes_out, sizeof head + body.size() + transfer.size);
  iovec begin[2] = {{&head, sizeof head}, {body.data(), body.size()}};
  stream_->send(begin);
  const auto send_what_was_read = [&] {
    if (!read) return;
    if (executor_.wait({&read_event, 1}) != CL_SUCCESS)
      throw channel::Lost{"the device failed in the middle of a read"};
    if (head.in_blocks) return send_blocks({read, read_size});
    iovec piece{read, read_size};
    stream_->send({&piece, 1});
  };
  for (std::size_t done = 0; done < transfer.size; done += part.range.size) {
    part.range = {transfer.command.range.offset + done, std::min(kPart, transfer.size - done)};
    std::byte* const memory = next_part();
    part.to = memory;
    const ObjectId event = new_part_event();
    const std::span<const ObjectId> waits = done == 0 ? place.waits : std::span<const ObjectId>{};
    if (!event || executor_.submit(part, {place.queue, waits, event, Blocking::no}) != CL_SUCCESS)
      throw channel::Lost{"the device failed in the middle of a read"};
    executor_.flush(place.queue);
    send_what_was_read();
    read = memory;
    read_size = part.range.size;
    read_event = event;
  }
  send_what_was_read();
  note_result(place, place.event ? executor_.submit(command::Marker{}, {place.queue, {}, place.event, Blocking::no})
                                 : CL_SUCCESS);
}

void Session::expect_bulk(std::size_t size, std::size_t expected) {
  if (size != expected) throw BadMessage{"more or less data than the message says"};
}

void Session::skip_bulk(std::size_t size) {
  std::array<std::byte, 4096> piece;
  for (; size != 0; size -= std::min(size, piece.size())) input_.read(piece.data(), std::min(size, piece.size()));
}

void Session::hold(std::size_t size) {
  std::unique_lock lock{own_mutex_};
  held_less_.wait(lock, [&] { return held_ == 0 || (held_ < kMostHeld && size <= kMostHeld - held_); });
  held_ += size;
}

void Session::let_go(std::size_t size) {
  const std::lock_guard lock{own_mutex_};
  held_ -= size;
  held_less_.notify_one();
}

// Where in an object that is worked on in place the transfer begins; null if it must be left to the driver.
template <typename Command>
std::byte* Session::place_in_object(const Transfer<Command>& transfer) const {
  if constexpr (requires { transfer.command.range; }) {
    const Place& place = transfer.place;
    const auto memory = memories_.find(transfer.command.memory.value());
    const Queue& queue = *queues_.at(place.queue.value());
    const bool may = transfer.code == CL_SUCCESS && !transfer.shared && memory->second.host && place.waits.empty() &&
                     !(place.event && queue.is_profiled);
    return may ? memory->second.host + transfer.command.range.offset : nullptr;
  } else {
    return nullptr;
  }
}

// A command that was carried out here: its event is there, and the queue has nothing more to do than before.
void Session::mark_done(const Place& place) {
  if (!place.event) return;
  Queue& queue = *queues_[place.queue.value()];
  const bool was_idle = queue.is_idle();
  note_result(place, executor_.submit(command::Marker{}, {place.queue, {}, place.event, Blocking::no}));
  if (was_idle) queue.is_done(queue.last);
}

// That a driver may read from memory for such an image; no element has more than 16 bytes.
std::size_t Session::most_bytes(const cl_image_desc& desc) {
  constexpr std::size_t kLargestElement = 16;
  const std::size_t row = std::max(desc.image_row_pitch, product({desc.image_width, kLargestElement}));
  const std::size_t slice =
      std::max(desc.image_slice_pitch, product({row, std::max<std::size_t>(desc.image_height, 1)}));
  return product({slice, std::max<std::size_t>({desc.image_depth, desc.image_array_size, 1})});
}

// However little the client sends.
Session::Data Session::receive_image(std::size_t size, std::size_t read_by_driver) {
  if (size > read_by_driver || read_by_driver > kLargestImage) throw BadMessage{"an image of no sensible size"};
  Data data{static_cast<std::byte*>(std::calloc(read_by_driver, 1)), std::free};
  if (!data) throw std::bad_alloc{};
  input_.read(data.get(), size);
  return data;
}

template <typename Command>
void Session::write(const Head& head, Reader& reader) {
  const auto transfer = read_transfer<Command>(reader);
  const std::size_t size = transfer.size;
  if (!transfer.shared) expect_bulk(head.bulk, size);
  const Number number = head.number;
  if (transfer.shared)
    return write_from(
        transfer, transfer.shared, [this, number] { answer(number); }, number != 0);
  Queue& queue = *queues_[transfer.place.queue.value()];
  if (std::byte* const to = queue.is_idle() ? place_in_object(transfer) : nullptr) {
    input_.read(to, size);
    return mark_done(transfer.place);
  }
  if constexpr (std::is_same_v<Command, command::Write>) {
    if (goes_in_parts(transfer)) return write_in_parts(transfer);
  }
  // Small ones are kept until many are done: who asks for each pays more than for the write. They count from then on:
  // before that nothing is under way that would let them go.
  const bool is_small = size <= kSmall && queue.in_order;
  if (!is_small) hold(size);
  const Data data = transfer.code == CL_SUCCESS ? allocate(size) : nullptr;
  if (!data) {
    if (!is_small) let_go(size);
    skip_bulk(size);
    return note_result(transfer.place, transfer.code == CL_SUCCESS ? CL_OUT_OF_HOST_MEMORY : transfer.code);
  }
  input_.read(data.get(), size);
  if (is_small) {
    queue.small->push_back(data);
    queue.small_bytes += size;
    const bool is_enough = queue.small_bytes >= kManySmall || queue.small->size() >= kMostSmall;
    if (!is_enough) return write_from(transfer, data.get(), nullptr, false);
    hold(queue.small_bytes);
    const auto done = [this, kept = std::move(queue.small), bytes = queue.small_bytes] { let_go(bytes); };
    queue.small = std::make_shared<std::vector<Data>>();
    queue.small_bytes = 0;
    return write_from(transfer, data.get(), done, true);
  }
  write_from(
      transfer, data.get(), [this, data, size] { let_go(size); }, true);
}

// What the device still needs stays until it is done.
void Session::free_queue(ObjectId id) {
  settle_what_is_written_in(id);
  auto queue = std::move(queues_[id.value()]);
  queues_.erase(id.value());
  executor_.when_idle(Whose::all,
                      [this, queue = std::move(queue)]() mutable { helpers_.run([queue = std::move(queue)] {}); });
}

// done() is called when the data isn't needed any more, if that is of interest.
template <typename Command>
void Session::write_from(const Transfer<Command>& transfer, const void* from, std::function<void()> done, bool tell) {
  const Place& place = transfer.place;
  Command command = transfer.command;
  command.from = from;
  const ObjectId own = place.event || !tell ? ObjectId{} : new_own_id();
  const ObjectId event = own ? own : place.event;
  cl_int code = transfer.code;
  if (code == CL_SUCCESS)
    code = executor_.submit(command, {place.queue, place.waits, event, event || !tell ? Blocking::no : Blocking::yes});
  note_result_of(command, place, code);
  if (code == CL_SUCCESS && transfer.size >= kFlushFrom) executor_.flush(place.queue);
  if (!tell) return;
  if (code != CL_SUCCESS) {
    free_own_slot(own);
    executor_.finish(place.queue);  // small ones before it may still be under way
    return done();
  }
  when_done(place.queue, event, own, [done = std::move(done)](cl_int) { done(); });
}

void Session::handle_command(const Head& head, Reader& reader) {
  Counters::add(counters_.commands, 1);
  handle_command_from<0>(head, reader);
}

}  // namespace grus::server
