// RemoteExecutor: commands that move data between the program's memory and objects. There are four ways, the best
// first: the program's thread copies itself, where the object lives in shared memory and nothing happens before; the
// program's memory is shared, and the worker copies from or to it; the bulk area, in parts that the device takes while
// the next is copied; the stream.
#include <algorithm>

#include "base/per_process.hpp"
#include "executor/remote.hpp"
#include "executor/remote_place.hpp"

namespace grus {

using channel::Kind;
using channel::kind_of;

namespace {

constexpr std::size_t kSlot = std::size_t{4} << 20;  // of the bulk area
constexpr std::size_t kInSlotsFrom = 32 * 1024;      // smaller ones are as fast in the stream
constexpr int kAttempts = 3;

HostBlock block_of(const command::Rectangle& r, const void* host) {
  const std::size_t row_pitch = r.host_row_pitch ? r.host_row_pitch : r.region[0];
  const std::size_t slice_pitch = r.host_slice_pitch ? r.host_slice_pitch : row_pitch * r.region[1];
  auto* const start = static_cast<std::byte*>(const_cast<void*>(host));
  return {start + r.host_origin[2] * slice_pitch + r.host_origin[1] * row_pitch + r.host_origin[0],
          r.region[0],
          r.region[1],
          r.region[2],
          row_pitch,
          slice_pitch};
}

// The object's side of the same rectangle.
HostBlock block_in(const command::Rectangle& r, std::byte* object) {
  const std::size_t row_pitch = r.buffer_row_pitch ? r.buffer_row_pitch : r.region[0];
  const std::size_t slice_pitch = r.buffer_slice_pitch ? r.buffer_slice_pitch : row_pitch * r.region[1];
  return {object + r.buffer_origin[2] * slice_pitch + r.buffer_origin[1] * row_pitch + r.buffer_origin[0],
          r.region[0],
          r.region[1],
          r.region[2],
          row_pitch,
          slice_pitch};
}

}  // namespace

void RemoteExecutor::make_slots() {
  const auto& memory = connection_->memory();
  for (std::size_t start = 0; memory && start + kSlot <= memory->bulk().size(); start += kSlot)
    free_slots_.push_back(memory->bulk().data() + start);
}

// With the connection's lock. Null if there is none; the one that was used last is in the caches.
std::byte* RemoteExecutor::take_free_slot() {
  if (free_slots_.empty()) return nullptr;
  std::byte* const slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

// Null if the connection is lost.
std::byte* RemoteExecutor::take_slot() {
  std::byte* slot = connection_->with_lock([&] { return take_free_slot(); });
  if (slot) return slot;
  connection_->flush();
  connection_->wait_until([&] { return (slot = take_free_slot()) || connection_->is_lost(); });
  return slot;
}

bool RemoteExecutor::are_complete(std::span<const ObjectId> events) {
  return events.empty() || connection_->with_lock([&] {
    return std::all_of(events.begin(), events.end(), [&](ObjectId id) {
      const auto found = events_.find(id.value());
      return found != events_.end() && found->second.status == CL_COMPLETE;
    });
  });
}

// On the program's own thread, if the object lives in shared memory that its device works on: at once where nothing is
// to happen before, and for a blocking command after all that is. Nothing, if it must go another way.
template <typename Copy>
std::optional<cl_int> RemoteExecutor::copy_here(ObjectId memory, const Placement& placement, Copy copy) {
  if (!memories_[memory].in_place) return std::nullopt;
  RemoteQueue& queue = *queues_[placement.queue];
  if (placement.event && queue.is_profiled) return std::nullopt;  // it wants to know how long the device took
  bool waits_are_over = are_complete(placement.waits);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::unique_lock lock{queue.mutex};
    if (waits_are_over && queue.is_idle()) {
      copy();
      if (!placement.event) return CL_SUCCESS;
      note_turn(queue, {placement.queue, {}, placement.event, Blocking::no}, 0);
      connection_->with_lock([&] { events_[placement.event.value()].status = CL_COMPLETE; });
      connection_->tell(kind_of<command::Marker>(), Place{{placement.queue, {}, placement.event}});
      queue.is_done(queue.last);
      return CL_SUCCESS;
    }
    lock.unlock();
    if (placement.blocking == Blocking::no || !queue.in_order) return std::nullopt;
    if (!waits_are_over) tell(command::Marker{}, {placement.queue, placement.waits, {}, Blocking::no});
    if (const cl_int code = finish(placement.queue); code != CL_SUCCESS) return code;
    waits_are_over = true;
  }
  return std::nullopt;
}

// One part of a read: by the stream, or into shared memory, whose contents are then copied to where they belong.
template <typename Command>
void RemoteExecutor::ask_for(const Command& command, const HostBlock& to, std::byte* slot, const Placement& placement,
                             const std::shared_ptr<ReadAnswer>& answer) {
  RemoteQueue& queue = *queues_[placement.queue];
  const bool is_shared = !slot && is_in_arena(to);
  const std::uint64_t place = slot ? arena_->place_of(slot) : is_shared ? arena_->place_of(to.start) : 0;
  const std::lock_guard turn{queue.mutex};
  ReadNumber number = 0;
  connection_->with_lock([&] {
    number = next_read_++;
    coming_[number] = {placement.queue, to, queue.is_own};
    ++answer->parts;
  });
  answer->before = note_turn(queue, placement, number);
  const auto has_come = [this, number, answer, slot, in = queue.shared_from_this(), turn = queue.last.load(),
                         id = placement.queue, event = placement.event, before = answer->before](wire::Reader* reader) {
    const cl_int code = reader ? reader->take<cl_int>() : kLost;
    if (answer->code == CL_SUCCESS) answer->code = code;
    --answer->parts;
    if (slot) free_slots_.push_back(slot);
    read_has_come(number);
    // Answers come in any order; what was read before must be there, too, when the program is told.
    after_reads(id, before, [this, answer, in, turn, event, code] {
      if (in->in_order && code == CL_SUCCESS) in->is_done(turn);
      if (const auto found = events_.find(event.value()); found != events_.end()) found->second.status = answer->code;
    });
  };
  connection_->ask_later({.to = is_shared ? HostBlock{} : to, .from = slot}, has_come, kind_of<Command>(),
                         Place{placement}, command, place);
}

template <typename Command>
cl_int RemoteExecutor::read(const Command& command, const HostBlock& to, const Placement& placement) {
  if (connection_->is_lost()) return kLost;
  std::optional<Connection::Waiter> waiter;
  if (placement.blocking == Blocking::yes) waiter.emplace(*connection_);
  const auto answer = std::make_shared<ReadAnswer>();
  if (!goes_in_slots(to, placement, std::is_same_v<Command, command::Read>)) {
    ask_for(command, to, nullptr, placement, answer);
  } else if constexpr (std::is_same_v<Command, command::Read>) {
    command::Read part = command;
    for (std::size_t done = 0; done < to.size(); done += part.range.size) {
      part.range = {command.range.offset + done, std::min(kSlot, to.size() - done)};
      const bool is_last = done + part.range.size == to.size();
      std::byte* const slot = take_slot();
      if (!slot) return kLost;
      ask_for(part, HostBlock::of(to.start + done, part.range.size), slot,
              {placement.queue, done == 0 ? placement.waits : std::span<const ObjectId>{},
               is_last ? placement.event : ObjectId{}, is_last && done == 0 ? placement.blocking : Blocking::no},
              answer);
    }
  } else {
    std::byte* const slot = take_slot();
    if (!slot) return kLost;
    ask_for(command, to, slot, placement, answer);
  }
  if (placement.blocking == Blocking::no) return CL_SUCCESS;
  connection_->flush();
  connection_->count_round_trip();
  connection_->wait_until([&] { return answer->parts == 0 && !has_coming(placement.queue, answer->before); });
  return answer->code;
}

// Large enough, and either one slot is enough, or the parts are of one stretch, come in order and need no one time.
bool RemoteExecutor::goes_in_slots(const HostBlock& block, const Placement& placement, bool is_stretch) {
  const RemoteQueue& queue = *queues_[placement.queue];
  if (!has_slots_ || block.size() < kInSlotsFrom || is_in_arena(block)) return false;
  return block.size() <= kSlot || (is_stretch && queue.in_order && !(placement.event && queue.is_profiled));
}

bool RemoteExecutor::is_in_arena(const HostBlock& block) const {
  return arena_ && block.is_packed() && block.size() != 0 && arena_->has(block.start, block.size());
}

// One part of a write, from a slot that was filled.
template <typename Command>
void RemoteExecutor::write_from(std::byte* slot, const Command& command, const Placement& placement) {
  RemoteQueue& queue = *queues_[placement.queue];
  const std::lock_guard turn{queue.mutex};
  note_turn(queue, placement, 0);
  const auto taken = [this, slot](wire::Reader*) { free_slots_.push_back(slot); };
  connection_->ask_later({}, taken, kind_of<Command>(), Place{placement}, command, arena_->place_of(slot));
}

// One slot is filled while the one before it is told of.
template <typename Command>
cl_int RemoteExecutor::write_in_slots(const Command& command, const HostBlock& from, const Placement& placement) {
  if constexpr (std::is_same_v<Command, command::Write>) {
    const CopyThreads::Busy busy{of_this_process<CopyThreads>()};
    std::array<CopyBeside, 2> copies;
    std::array<std::byte*, 2> slots{};
    const std::size_t count = (from.size() + kSlot - 1) / kSlot;
    std::size_t told = 0;
    const auto tell_of_next = [&] {
      const std::size_t done = told * kSlot;
      copies[told % 2].finish();
      command::Write part = command;
      part.range = {command.range.offset + done, std::min(kSlot, from.size() - done)};
      write_from(slots[told % 2], part,
                 {placement.queue, told == 0 ? placement.waits : std::span<const ObjectId>{},
                  told + 1 == count ? placement.event : ObjectId{}, placement.blocking});
      ++told;
    };
    for (std::size_t number = 0; number < count; ++number) {
      std::byte*& slot = slots[number % 2];
      slot = connection_->with_lock([&] { return take_free_slot(); });
      if (!slot) {
        if (told < number) tell_of_next();  // it may be what is waited for
        slot = take_slot();
      }
      if (!slot) return kLost;
      const std::size_t done = number * kSlot;
      copies[number % 2].start(slot, from.start + done, std::min(kSlot, from.size() - done),
                               CopyThreads::stores_of_writes(from.size()));
      if (told < number) tell_of_next();
    }
    tell_of_next();
  } else {
    std::byte* const slot = take_slot();
    if (!slot) return kLost;
    copy_block(from.packed_at(slot), from);
    write_from(slot, command, placement);
  }
  return connection_->is_lost() ? kLost : CL_SUCCESS;
}

template <typename Command>
cl_int RemoteExecutor::write(const Command& command, const HostBlock& from, const Placement& placement) {
  if (connection_->is_lost()) return kLost;
  // What is to be written may be what an earlier read brings.
  const auto is_coming = [&] {
    return std::any_of(coming_.begin(), coming_.end(),
                       [&](const auto& entry) { return entry.second.to.overlaps(from); });
  };
  if (connection_->with_lock(is_coming)) {
    connection_->flush();
    connection_->wait_until([&] { return !is_coming(); });
  }
  if (goes_in_slots(from, placement, std::is_same_v<Command, command::Write>)) {
    if (const cl_int code = write_in_slots(command, from, placement); code != CL_SUCCESS) return code;
  } else {
    RemoteQueue& queue = *queues_[placement.queue];
    const std::unique_lock turn{queue.mutex};
    note_turn(queue, placement, 0);
    if (is_in_arena(from)) {
      connection_->tell(kind_of<Command>(), Place{placement}, command, arena_->place_of(from.start));
    } else {
      connection_->tell_with(from, kind_of<Command>(), Place{placement}, command, std::uint64_t{0});
    }
  }
  if (placement.blocking == Blocking::no) return CL_SUCCESS;
  // The data has left the program's memory, which is all that blocking means. An event that it asks about is done.
  if (is_in_arena(from)) return finish(placement.queue);
  return placement.event ? wait({&placement.event, 1}) : CL_SUCCESS;
}

cl_int RemoteExecutor::submit(const command::Read& command, const Placement& placement) {
  const auto to = HostBlock::of(command.to, command.range.size);
  const auto copied = copy_here(command.memory, placement, [&] {
    copy_bytes(to.start, memories_[command.memory].host + command.range.offset, command.range.size);
  });
  return copied ? *copied : read(command, to, placement);
}

cl_int RemoteExecutor::submit(const command::Write& command, const Placement& placement) {
  const auto from = HostBlock::of(command.from, command.range.size);
  const auto copied = copy_here(command.memory, placement, [&] {
    copy_bytes(memories_[command.memory].host + command.range.offset, from.start, command.range.size);
  });
  return copied ? *copied : write(command, from, placement);
}

cl_int RemoteExecutor::submit(const command::ReadRectangle& command, const Placement& placement) {
  const auto to = block_of(command.rectangle, command.to);
  const auto copied = copy_here(command.memory, placement,
                                [&] { copy_block(to, block_in(command.rectangle, memories_[command.memory].host)); });
  return copied ? *copied : read(command, to, placement);
}

cl_int RemoteExecutor::submit(const command::WriteRectangle& command, const Placement& placement) {
  const auto from = block_of(command.rectangle, command.from);
  const auto copied = copy_here(command.memory, placement,
                                [&] { copy_block(block_in(command.rectangle, memories_[command.memory].host), from); });
  return copied ? *copied : write(command, from, placement);
}

HostBlock RemoteExecutor::image_block(ObjectId id, const Triple& region, std::size_t row_pitch, std::size_t slice_pitch,
                                      const void* start) {
  const std::lock_guard lock{mutex_};
  const RemoteImage& image = images_[id.value()];
  HostBlock block{static_cast<std::byte*>(const_cast<void*>(start)), region[0] * image.element_size};
  if (image.type == CL_MEM_OBJECT_IMAGE1D_ARRAY) {  // whose rows are slices
    block.slices = region[1];
    block.row_pitch = block.row;
    block.slice_pitch = slice_pitch ? slice_pitch : row_pitch ? row_pitch : block.row;
    return block;
  }
  block.rows = region[1];
  block.slices = region[2];
  block.row_pitch = row_pitch ? row_pitch : block.row;
  block.slice_pitch = slice_pitch ? slice_pitch : block.row_pitch * region[1];
  return block;
}

// The image's own side, if it lives in shared memory.
HostBlock RemoteExecutor::block_in_image(ObjectId id, const command::ImageRegion& where) {
  RemoteImage image;
  {
    const std::lock_guard lock{mutex_};
    image = images_[id.value()];
  }
  const bool rows_are_slices = image.type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
  std::byte* const start = memories_[id].host + where.origin[0] * image.element_size +
                           where.origin[1] * (rows_are_slices ? image.slice_pitch : image.row_pitch) +
                           where.origin[2] * image.slice_pitch;
  return image_block(id, where.region, image.row_pitch, image.slice_pitch, start);
}

cl_int RemoteExecutor::submit(const command::ReadImage& command, const Placement& placement) {
  const auto to = image_block(command.memory, command.where.region, command.row_pitch, command.slice_pitch, command.to);
  const auto copied =
      copy_here(command.memory, placement, [&] { copy_block(to, block_in_image(command.memory, command.where)); });
  return copied ? *copied : read(command, to, placement);
}

cl_int RemoteExecutor::submit(const command::WriteImage& command, const Placement& placement) {
  const auto from =
      image_block(command.memory, command.where.region, command.row_pitch, command.slice_pitch, command.from);
  const auto copied =
      copy_here(command.memory, placement, [&] { copy_block(block_in_image(command.memory, command.where), from); });
  return copied ? *copied : write(command, from, placement);
}

// A command that does nothing, for a map that need not read.
cl_int RemoteExecutor::mark(const Placement& placement) {
  const cl_int code = submit(command::Marker{}, placement);
  return code == CL_SUCCESS && placement.blocking == Blocking::yes ? finish(placement.queue) : code;
}

// Where the object lives in shared memory it is mapped there, by the driver unless it is worked on in place. Else the
// program's own memory stands for the object while it is mapped: filled when it is mapped, emptied at the unmap.
template <typename Map>
cl_int RemoteExecutor::map_shared(const Map& map, const Placement& placement) {
  if (memories_[map.memory].in_place) {
    const auto done = copy_here(map.memory, placement, [] {});
    return done ? *done : mark(placement);
  }
  {
    RemoteQueue& queue = *queues_[placement.queue];
    const std::lock_guard turn{queue.mutex};
    note_turn(queue, placement, 0);
    connection_->tell(kind_of<Map>(), Place{placement}, map, arena_->place_of(map.pointer));
  }
  return placement.blocking == Blocking::yes ? finish(placement.queue) : CL_SUCCESS;
}

cl_int RemoteExecutor::submit(const command::MapBuffer& map, const Placement& placement) {
  if (memories_[map.memory].host) return map_shared(map, placement);
  const cl_int code = map.flags & CL_MAP_WRITE_INVALIDATE_REGION
                          ? mark(placement)
                          : submit(command::Read{{map.memory}, map.range, map.pointer, true}, placement);
  if (code != CL_SUCCESS) return code;
  const std::lock_guard lock{mutex_};
  mapped_.emplace(map.pointer, Mapped{map.memory, map.flags, map.range, {}});
  return CL_SUCCESS;
}

cl_int RemoteExecutor::submit(const command::MapImage& map, const Placement& placement) {
  if (memories_[map.memory].host) return map_shared(map, placement);
  RemoteImage image;
  {
    const std::lock_guard lock{mutex_};
    image = images_[map.memory.value()];
  }
  const command::ReadImage read{{map.memory}, map.where, image.row_pitch, image.slice_pitch, map.pointer};
  const cl_int code = map.flags & CL_MAP_WRITE_INVALIDATE_REGION ? mark(placement) : submit(read, placement);
  if (code != CL_SUCCESS) return code;
  const std::lock_guard lock{mutex_};
  mapped_.emplace(map.pointer, Mapped{map.memory, map.flags, {}, map.where});
  return CL_SUCCESS;
}

cl_int RemoteExecutor::submit(const command::Unmap& unmap, const Placement& placement) {
  if (memories_[unmap.memory].host) return map_shared(unmap, placement);
  Mapped mapped;
  RemoteImage image;
  {
    const std::lock_guard lock{mutex_};
    const auto [first, last] = mapped_.equal_range(unmap.pointer);
    const auto found =
        std::find_if(first, last, [&](const auto& entry) { return entry.second.memory == unmap.memory; });
    if (found == last) return CL_INVALID_VALUE;
    mapped = found->second;
    mapped_.erase(found);
    if (const auto known = images_.find(unmap.memory.value()); known != images_.end()) image = known->second;
  }
  if (!(mapped.flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION))) return submit(command::Marker{}, placement);
  if (image.element_size == 0) return submit(command::Write{{unmap.memory}, mapped.range, unmap.pointer}, placement);
  return submit(command::WriteImage{{unmap.memory}, mapped.where, image.row_pitch, image.slice_pitch, unmap.pointer},
                placement);
}

}  // namespace grus
