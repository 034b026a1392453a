#include "server/residency.hpp"

#include <algorithm>
#include <future>
#include <utility>

#include "base/log.hpp"

namespace grus::server {
namespace {

using Word = MemoryWord::What;

constexpr std::chrono::seconds kPatienceWithCommands{60};  // for commands that are under way
constexpr int kMostMovers = 8;
constexpr std::uint64_t kWorthTelling = std::uint64_t{1} << 20;  // bytes that a session has less than it may have

}  // namespace

MemoryWord Residency::ask(Lock& lock, const Request& request) {
  Request numbered = request;
  numbered.number = ++asked_;
  if (!ask_(numbered)) return {};
  changed_.wait(lock, [this] { return answer_.number == asked_; });
  return answer_;
}

// Whether it was changed: what the session may have and doesn't use, it has to ask for again.
bool Residency::hear_of_quota() {
  const std::uint64_t quotas = counters_.quotas.load(std::memory_order_acquire);
  if (std::exchange(quotas_, quotas) == quotas) return false;
  has_quota_ = true;  // until it is told otherwise
  total_ = std::min(total_, counters_.memory.load(std::memory_order_relaxed));
  return true;
}

bool Residency::may_have(std::uint64_t total) {
  if (!ask_) return true;
  Lock lock{mutex_};
  hear_of_quota();
  while (total > total_) {
    const MemoryWord answer = ask(lock, {.what = Request::What::total, .bytes = total});
    total_ = answer.bytes;
    has_quota_ = answer.has_quota != 0;
    if (!hear_of_quota()) break;
  }
  return total <= total_;
}

void Residency::has_less(std::uint64_t total) {
  if (!ask_) return;
  const Lock lock{mutex_};
  const bool is_worth_it = hear_of_quota() || total_ >= total + kWorthTelling || (total == 0 && total_ != 0);
  if (!has_quota_ || !is_worth_it) return;
  total_ = total;
  ask_({.what = Request::What::less, .bytes = total});
}

bool Residency::get_room_for_context() {
  if (!ask_) return false;
  Lock lock{mutex_};
  return ask(lock, {.what = Request::What::context}).what == Word::made_room;
}

void Residency::add(const NewBuffer& order, std::uint32_t device, ObjectId queue, Kind kind) {
  if (!ask_) return;
  const Lock lock{mutex_};
  Record& record = records_[order.id.value()];
  record.order = order;
  record.order.host = nullptr;
  record.order.initial = nullptr;
  record.order.host_memory.reset();
  record.device = device;
  record.queue = queue;
  record.is_fixed = kind == Kind::fixed;
}

void Residency::fix(ObjectId id) {
  const Lock lock{mutex_};
  if (const auto record = records_.find(id.value()); record != records_.end()) record->second.is_fixed = true;
}

void Residency::fix_all_of(ObjectId context) {
  const Lock lock{mutex_};
  for (auto& [id, record] : records_) record.is_fixed = record.is_fixed || record.order.context == context;
}

bool Residency::forget(ObjectId id) {
  if (!ask_) return true;
  const Lock lock{mutex_};
  const auto found = records_.find(id.value());
  if (found == records_.end()) return true;
  Record& record = found->second;
  const bool is_out = record.where == Record::Where::host;
  if (record.where == Record::Where::device) here_[record.device] -= record.order.size;
  if (is_out || record.where == Record::Where::used_at_host) let_go(record);
  records_.erase(found);
  count();
  return !is_out;
}

void Residency::pin(ObjectId id, const Lock&) {
  if (const auto record = records_.find(id.value()); record != records_.end()) ++record->second.pins;
}

void Residency::unpin(ObjectId id) {
  const Lock lock{mutex_};
  if (const auto record = records_.find(id.value()); record != records_.end()) --record->second.pins;
}

// All of a command's objects are needed at once, so room for all of them is asked for: who got a part of it and waited
// for the rest could wait for another who does the same.
cl_int Residency::use(std::span<const ObjectId> ids, Lock& lock, Excess excess) {
  if (!ask_) return CL_SUCCESS;
  if (!lock) lock = Lock{mutex_};
  if (records_.empty()) return CL_SUCCESS;
  counters_.used_at.store(static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()),
                          std::memory_order_relaxed);
  const std::uint64_t use = ++uses_;
  std::vector<Record*> missing;
  for (const ObjectId id : ids) {
    const auto found = records_.find(id.value());
    if (found == records_.end() || found->second.used == use) continue;
    found->second.used = use;
    if (found->second.is_missing()) missing.push_back(&found->second);
  }
  cl_int code = CL_SUCCESS;
  std::array<bool, LeasePage::kDevices> must{};
  while (!missing.empty() && code == CL_SUCCESS) {
    const std::uint32_t device = missing.front()->device;
    std::uint64_t needed = 0;
    for (const Record* record : missing) needed += record->device == device ? record->order.size : 0;
    if (here_[device] + needed > allowed_[device]) {
      code = get_room(lock, device, here_[device] + needed, must[device]);
      // Meanwhile others may have been moved out.
      missing.clear();
      for (auto& [id, record] : records_) {
        if (record.used == use && record.is_missing()) missing.push_back(&record);
      }
      if (code == CL_MEM_OBJECT_ALLOCATION_FAILURE && excess == Excess::at_host) {
        code = bring_some(missing, device);
        std::erase_if(missing, [&](const Record* record) { return record->device == device; });
      }
      continue;
    }
    for (Record* record : missing) {
      if (record->device == device && code == CL_SUCCESS) code = bring(*record);
    }
    std::erase_if(missing, [&](const Record* record) { return record->device == device; });
  }
  if (is_granted_) {
    is_granted_ = false;
    changed_.notify_all();
  }
  return code;
}

// From the server, or from what isn't needed now.
cl_int Residency::get_room(Lock& lock, std::uint32_t device, std::uint64_t wanted, bool& must) {
  const MemoryWord answer =
      ask(lock, {.what = Request::What::room, .device = device, .must = must ? 1U : 0U, .bytes = wanted});
  if (answer.what == Word::granted) return CL_SUCCESS;
  if (answer.what != Word::refused) return CL_OUT_OF_RESOURCES;
  // What it has may have changed since.
  std::uint64_t needed = 0;
  for (const auto& [id, record] : records_) {
    if (record.used == uses_ && record.device == device && record.is_missing()) needed += record.order.size;
  }
  const std::uint64_t allowed = allowed_[device];
  if (needed <= allowed) make_room(device, allowed - needed, Spare::what_is_needed);
  if (here_[device] + needed <= allowed) return CL_SUCCESS;
  if (must) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  must = true;
  return CL_SUCCESS;
}

cl_int Residency::bring(Record& record) {
  if (record.where == Record::Where::host) {
    const ObjectId id = record.order.id;
    cl_int code = executor_.create_buffer(record.order);
    if (code != CL_SUCCESS) return code;
    code = restore(record);
    if (code == CL_SUCCESS) code = executor_.finish(record.queue);  // other queues use it
    if (code != CL_SUCCESS) {
      executor_.free(ObjectType::memory, id);
      return code;
    }
    let_go(record);
    Counters::add(counters_.moved_in, record.order.size);
    on_return_(id);
  }
  record.where = Record::Where::device;
  here_[record.device] += record.order.size;
  count();
  return CL_SUCCESS;
}

bool Residency::keep_at_host(ObjectId id, const std::byte* contents, const Lock&) {
  const auto found = records_.find(id.value());
  if (found == records_.end() || found->second.is_fixed) return false;
  const auto read = [contents](Range range, std::byte* to) {
    std::copy_n(contents + range.offset, range.size, to);
    return true;
  };
  const bool is_kept = store(found->second, read);
  count();
  return is_kept;
}

// A command that needs more than there is.
cl_int Residency::bring_some(std::span<Record* const> missing, std::uint32_t device) {
  cl_int code = CL_SUCCESS;
  for (Record* record : missing) {
    if (record->device != device || code != CL_SUCCESS) continue;
    code = here_[device] + record->order.size <= allowed_[device] ? bring(*record) : leave_at_host(*record);
  }
  return code;
}

// The device works on it there, which is slower, for as long as the buffer is.
cl_int Residency::leave_at_host(Record& record) {
  const std::size_t size = record.order.size;
  if (record.is_fixed) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  if (record.where == Record::Where::nowhere_yet) {
    if (size > swap_left_) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    try {
      record.copy = memory_in_pages(size);
    } catch (const std::bad_alloc&) {
      return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    }
    executor_.free(ObjectType::memory, record.order.id);
    record.where = Record::Where::host;
    out_ += size;
    kept_ += size;
    swap_left_ -= size;
  }
  if (!unpack(record)) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  NewBuffer order = record.order;
  order.host = record.copy->data();
  order.host_memory = record.copy;
  const cl_int code = executor_.create_buffer(order);
  count();
  if (code != CL_SUCCESS) return code;
  record.where = Record::Where::used_at_host;
  on_return_(record.order.id);
  return CL_SUCCESS;
}

// Nothing that is under way uses it.
bool Residency::take_away(Record& record) {
  const auto read = [&](Range range, std::byte* to) {
    return executor_.submit(command::Read{{record.order.id}, range, to}, {record.queue, {}, {}, Blocking::yes}) ==
           CL_SUCCESS;
  };
  if (!store(record, read)) return false;
  executor_.free(ObjectType::memory, record.order.id);
  here_[record.device] -= record.order.size;
  Counters::add(counters_.moved_out, record.order.size);
  return true;
}

// As it is, which is fastest, or packed if that would leave little room for others.
bool Residency::store(Record& record, const Source& read) {
  const std::size_t size = record.order.size;
  try {
    if (size <= swap_left_ / 2) {
      auto copy = memory_in_pages(size);
      if (!read({0, size}, copy->data())) return false;
      record.copy = std::move(copy);
    } else {
      PackedMemory packed;
      std::vector<std::byte> block(std::min(size, PackedMemory::kBlock));
      for (std::size_t offset = 0; offset < size; offset += block.size()) {
        const std::span part{block.data(), std::min(block.size(), size - offset)};
        if (!read({offset, part.size()}, part.data())) return false;
        packed.add(part);
        if (packed.size() > swap_left_) return false;
      }
      record.packed = std::move(packed);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  record.where = Record::Where::host;
  out_ += size;
  kept_ += record.kept();
  swap_left_ -= record.kept();
  return true;
}

cl_int Residency::restore(Record& record) {
  const ObjectId id = record.order.id;
  const std::size_t size = record.order.size;
  const Placement placement{record.queue, {}, {}, Blocking::yes};
  if (record.copy) return executor_.submit(command::Write{{id}, {0, size}, record.copy->data()}, placement);
  std::vector<std::byte> block(std::min(size, PackedMemory::kBlock));
  cl_int code = CL_SUCCESS;
  for (std::size_t offset = 0; offset < size && code == CL_SUCCESS; offset += block.size()) {
    const std::span part{block.data(), std::min(block.size(), size - offset)};
    record.packed.unpack(offset / PackedMemory::kBlock, part);
    code = executor_.submit(command::Write{{id}, {offset, part.size()}, part.data()}, placement);
  }
  return code;
}

// To be worked on at the host.
bool Residency::unpack(Record& record) {
  if (record.copy) return true;
  const std::size_t size = record.order.size;
  const std::uint64_t more = size - std::min<std::uint64_t>(size, record.kept());
  if (more > swap_left_) return false;
  std::shared_ptr<HostMemory> copy;
  try {
    copy = memory_in_pages(size);
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (std::size_t offset = 0; offset < size; offset += PackedMemory::kBlock)
    record.packed.unpack(offset / PackedMemory::kBlock,
                         {copy->data() + offset, std::min(PackedMemory::kBlock, size - offset)});
  record.packed = {};
  record.copy = std::move(copy);
  kept_ += more;
  swap_left_ -= more;
  return true;
}

void Residency::let_go(Record& record) {
  out_ -= record.order.size;
  kept_ -= record.kept();
  record.copy.reset();
  record.packed = {};
}

bool Residency::wait_until_idle() {
  const auto idle = std::make_shared<std::promise<void>>();
  auto done = idle->get_future();
  executor_.when_idle(Whose::all, [idle] { idle->set_value(); });
  return done.wait_for(kPatienceWithCommands) == std::future_status::ready;
}

// What was used longest ago goes first.
void Residency::make_room(std::uint32_t device, std::uint64_t at_most, Spare spare) {
  if (here_[device] <= at_most) return;
  std::vector<Record*> all;
  for (auto& [id, record] : records_) {
    const bool may = !record.is_fixed && record.pins == 0 && record.where == Record::Where::device &&
                     record.device == device && !(spare == Spare::what_is_needed && record.used == uses_);
    if (may) all.push_back(&record);
  }
  if (all.empty() || !wait_until_idle()) return;
  std::sort(all.begin(), all.end(), [](const Record* one, const Record* other) { return one->used < other->used; });
  for (Record* record : all) {
    if (here_[device] <= at_most) break;
    if (!take_away(*record))
      log::debug("serve", "there is no room for a buffer of {} bytes at the host", record->order.size);
  }
  count();
}

void Residency::count() {
  std::uint64_t here = 0;
  for (const std::uint64_t bytes : here_) here += bytes;
  counters_.on_device.store(here, std::memory_order_relaxed);
  counters_.swapped_out.store(out_, std::memory_order_relaxed);
  counters_.swap_used.store(kept_, std::memory_order_relaxed);
}

void Residency::hear(const MemoryWord& word) {
  const Lock lock{mutex_};
  answer_ = word;
  if (word.what == Word::granted || word.what == Word::refused) swap_left_ = word.swap_left;
  if (word.what == Word::granted && word.device < allowed_.size()) {
    allowed_[word.device] = word.bytes;
    is_granted_ = true;
  }
  changed_.notify_all();
}

void Residency::move_out(const MemoryWord& word) {
  if (word.device >= allowed_.size()) return;
  // So many wait already: the device has something else to do.
  if (moving_out_.fetch_add(1) >= kMostMovers) {
    moving_out_.fetch_sub(1);
    return;
  }
  Lock lock{mutex_};
  changed_.wait(lock, [this] { return !is_granted_; });  // else two could take it from each other for ever
  swap_left_ = word.swap_left;
  make_room(word.device, word.bytes, Spare::nothing);
  allowed_[word.device] = std::max(here_[word.device], std::min(allowed_[word.device], word.bytes));
  ask_({.what = Request::What::moved_out, .device = word.device, .bytes = allowed_[word.device]});
  moving_out_.fetch_sub(1);
  changed_.notify_all();
}

void Residency::wait_until_moved_out() {
  Lock lock{mutex_};
  changed_.wait(lock, [this] { return moving_out_ == 0; });
}

}  // namespace grus::server
