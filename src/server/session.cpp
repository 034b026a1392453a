#include "server/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "base/reserved_array.hpp"

namespace grus::server {

using channel::Head;
using channel::Kind;
using wire::BadMessage;
using wire::Reader;

namespace {

constexpr std::uint32_t kOwnSlots = 4096;                  // of events that the session makes for itself
constexpr std::chrono::seconds kPatienceWithGreeting{10};  // for a greeting
constexpr std::size_t kMostAnswers = 4096;  // that wait for a client to take them before no more is taken from it
constexpr std::size_t kMostDeferred = 4096;
constexpr std::chrono::milliseconds kIsIdle{100};  // a device that says so as soon as that
constexpr std::chrono::milliseconds kTellAgain{10};

struct TooMuch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr std::size_t kCredit = std::size_t{256} << 20;
// Devices are asked all of OpenCL's queries at once, so that clients need not ask one by one.
constexpr cl_device_info kFirstDeviceQuery = CL_DEVICE_TYPE;
constexpr cl_device_info kLastDeviceQuery = 0x1070;

}  // namespace

Session::Session(channel::Opened channel, Executor& executor, Terms terms, Counters& counters)
    : stream_{std::move(channel.stream)},
      memory_{std::move(channel.memory)},
      input_{*stream_},
      executor_{executor},
      terms_{std::move(terms)},
      counters_{counters},
      residency_{executor, counters, terms_.ask, [this](ObjectId buffer) { note_return(buffer); }} {}

// From a thread of its own, so that no kernel waits for room, and before every answer that says that commands are done.
void Session::send_output() {
  const std::lock_guard lock{output_mutex_};
  std::byte text[4096];  // from the heap it would make drivers slower, whose small blocks malloc then puts together
  for (ssize_t size = 0; (size = ::read(terms_.output, text, sizeof text)) > 0;) {
    printed_ += static_cast<std::uint64_t>(size);
    if (terms_.output_limit != 0 && printed_ > terms_.output_limit)
      return end_for(fmt::format("its kernels printed more than {} bytes", terms_.output_limit));
    send_message(Kind::output, 0, {text, text + size}, {});
  }
}

std::string Session::run() {
  try {
    // Who connects and says nothing is not waited for.
    input_.set_patience(kPatienceWithGreeting);
    Bytes body;
    bool greeted = false;
    for (;;) {
      const Head head = input_.read_head();
      input_.read_body(head, body);
      answers_.load(std::memory_order_acquire);
      if (greeted == (head.kind == Kind::hello)) throw BadMessage{"a session begins with one greeting"};
      if (!greeted) input_.set_patience({});
      greeted = true;
      Counters::add(counters_.bytes_in, sizeof head + head.body + head.bulk);
      if (head.number != 0) {
        Counters::add(counters_.round_trips, 1);
        sender_.wait_for_room(kMostAnswers);
        helpers_.wait_for_room(kMostAnswers);
        for (const auto& [id, queue] : queues_) queue->waiter.wait_for_room(kMostAnswers);
      }
      take(head, body);
    }
  } catch (const std::exception& error) {
    end_over(error);
    const std::lock_guard lock{state_mutex_};
    return why_over_.empty() ? error.what() : why_over_;
  }
}

std::string Session::wait_for_end() {
  try {
    stream_->wait_for_end();
    return {};
  } catch (const channel::Lost& lost) {
    return lost.what();
  }
}

// In order. But while commands wait for their turn at a device, who asks about events is answered as soon as the device
// has their commands, and doesn't wait for those behind.
void Session::take(const Head& head, Bytes& body) {
  std::unique_lock lock{state_mutex_};
  Turn* const turn = deferred_ == 0 ? turn_for(head, body) : nullptr;
  if (deferred_ == 0 && (!turn || turn->has_room())) {
    handle_now(head, body);
    if (!std::exchange(takes_long_, false)) return;
  }
  if (head.kind == Kind::event_status && !are_events_known(head, body))
    return answer(head.number, Result<cl_int>{CL_QUEUED});
  if (asks_about_events(head)) {
    questions_.push_back({head, std::move(body)});
    body = {};
    return answer_questions();
  }
  if (head.bulk != 0) {  // which is read when it is handled
    none_deferred_.wait(lock, [this] { return deferred_ == 0; });
    Turn* const own = turn_for(head, body);
    lock.unlock();
    if (own) own->wait_for_room();
    lock.lock();
    return handle_now(head, body);
  }
  ++deferred_;
  lock.unlock();
  deferring_.wait_for_room(kMostDeferred);
  deferring_.run([this, head, kept = std::make_shared<Bytes>(std::move(body))] { handle_deferred(head, *kept); });
  body = {};
}

// Who took too much is told so; who makes no sense isn't.
void Session::end_over(const std::exception& error) {
  if (dynamic_cast<const TooMuch*>(&error)) end_for(error.what());
  stream_->shut();
}

// Once the client had time to hear that.
void Session::end_for(const std::string& why) {
  tell_end(why);
  if (terms_.end) terms_.end(why);
}

// With state_mutex_ held.
void Session::handle_now(const Head& head, const Bytes& body) {
  Reader reader{body};
  handle(head, reader);
  reader.expect_end();
}

void Session::handle_deferred(const Head& head, const Bytes& body) {
  std::unique_lock lock{state_mutex_};
  Turn* const turn = turn_for(head, body);
  lock.unlock();
  if (turn) turn->wait_for_room();
  lock.lock();
  try {
    if (why_over_.empty()) {
      is_deferred_ = true;
      handle_now(head, body);
      is_deferred_ = false;
      answer_questions();
    }
  } catch (const std::exception& error) {
    why_over_ = error.what();
    end_over(error);  // whoever reads from the client notices
  }
  if (--deferred_ != 0) return;
  none_deferred_.notify_all();
  if (why_over_.empty() && !questions_.empty()) {
    why_over_ = "an object that isn't there";
    stream_->shut();
  }
}

// What a command waits for; null if nothing.
Turn* Session::turn_for(const Head& head, const Bytes& body) {
  if (!terms_.turn_at || head.kind < Kind::command || body.size() < sizeof(std::uint64_t)) return nullptr;
  if (head.kind == channel::kind_of<command::Marker>() || head.kind == channel::kind_of<command::Barrier>())
    return nullptr;
  const auto queue = Reader{body}.take<ObjectId>();
  return known(ObjectType::queue).find(queue) ? terms_.turn_at(queue) : nullptr;
}

bool Session::asks_about_events(const Head& head) {
  return head.kind == Kind::wait || head.kind == Kind::event_status || head.kind == Kind::event_profile ||
         head.kind == Kind::when_event;
}

// With state_mutex_ held. What waits for the device does so elsewhere.
void Session::answer_questions() {
  std::erase_if(questions_, [this](Question& question) {
    if (!are_events_known(question.head, question.body)) return false;
    question.head.crowd = channel::Crowd::yes;
    handle_now(question.head, question.body);
    return true;
  });
}

bool Session::are_events_known(const Head& head, const Bytes& body) {
  const auto is_known = [this](ObjectId event) { return known(ObjectType::event).find(event) != nullptr; };
  Reader reader{body};
  if (head.kind != Kind::wait) return is_known(reader.take<ObjectId>());
  const auto events = reader.take<std::vector<ObjectId>>();
  return std::all_of(events.begin(), events.end(), is_known);
}

void Session::send_message(Kind kind, Number number, const Bytes& body, std::span<const std::byte> bulk) {
  const std::lock_guard lock{out_mutex_};
  send_locked(kind, number, body, bulk);
}

void Session::send_locked(Kind kind, Number number, const Bytes& body, std::span<const std::byte> bulk) {
  Head head{static_cast<std::uint32_t>(body.size()),
            kind,
            channel::Crowd::no,
            number,
            bulk.size(),
            goes_in_blocks(bulk.size())};
  iovec parts[3] = {{&head, sizeof head},
                    {const_cast<std::byte*>(body.data()), body.size()},
                    {const_cast<std::byte*>(bulk.data()), bulk.size()}};
  Counters::add(counters_.bytes_out, sizeof head + body.size() + bulk.size());
  answers_.fetch_add(1, std::memory_order_release);
  try {
    if (head.in_blocks) {
      stream_->send({parts, 2});
      send_blocks(bulk);
    } else {
      stream_->send({parts, bulk.empty() ? 2U : 3U});
    }
  } catch (const channel::Lost&) {
    stream_->shut();  // whoever reads from the client notices
  }
}

void Session::send_blocks(std::span<const std::byte> data) {
  packer_->send(data, [this](std::span<iovec> block) { stream_->send(block); });
}

// Whoever sends may wait for the device, and so for ever.
void Session::tell_end(const std::string& why) {
  Bytes body;
  wire::Writer{body}(why);
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (const std::unique_lock lock{out_mutex_, std::try_to_lock}; lock) return send_locked(Kind::ended, 0, body, {});
    std::this_thread::sleep_for(kTellAgain);
  }
}

void Session::step_aside() {
  executor_.when_idle(Whose::all, [this, since = std::chrono::steady_clock::now()] {
    if (std::chrono::steady_clock::now() - since < kIsIdle) post([this] { send(Kind::step_aside, 0, {}); });
  });
}

void Session::post(std::function<void()> job) { sender_.run(std::move(job)); }

// What waits for the device must not keep other threads of the client waiting.
void Session::aside(const Head& head, std::function<void()> job) {
  if (head.crowd == channel::Crowd::no) {
    job();
  } else {
    helpers_.run(std::move(job));
  }
}

cl_int Session::check(ObjectType type, ObjectId id) {
  const cl_int* const found = known(type).find(id);
  if (!found) throw BadMessage{"an object that isn't there"};
  return *found;
}

void Session::check_all(ObjectType type, std::span<const ObjectId> ids) {
  for (const ObjectId id : ids) check(type, id);
}

void Session::check_new(ObjectType type, ObjectId id) {
  if (!id || id.slot() >= kMaxSlots - kOwnSlots) throw BadMessage{"an id that can't be"};
  const ObjectId there = known(type).in_slot_of(id);
  if (there == id) throw BadMessage{"an object that is there already"};
  if (there) free(type, there);  // whose creation failed, so that the client doesn't know it any more
}

void Session::create(ObjectType type, ObjectId id, cl_int code) {
  if (terms_.objects != 0 && object_count_ >= terms_.objects)
    throw TooMuch{fmt::format("it has more than {} objects", terms_.objects)};
  known(type).add(id, code);
  ++object_count_;
  count_objects(type);
}

void Session::create(const Head& head, ObjectType type, ObjectId id, cl_int code) {
  create(type, id, code);
  if (head.number == 0 && untold_failure_ == CL_SUCCESS) untold_failure_ = code;
}

void Session::count_objects(ObjectType type) {
  counters_.objects[static_cast<std::size_t>(type)].store(known(type).count(), std::memory_order_relaxed);
}

void Session::free(ObjectType type, ObjectId id) {
  const bool is_there = check(type, id) == CL_SUCCESS;
  if (type != ObjectType::event) {
    const std::lock_guard lock{builds_mutex_};
    if (in_use_.contains({type, id.value()})) throw BadMessage{"the end of an object that is in use"};
  }
  if (const auto use = bulk_uses_.find(id.value()); type == ObjectType::context && use != bulk_uses_.end()) {
    if (use->second.region) executor_.free(ObjectType::memory, use->second.region);
    free_own_slot(use->second.region);
    bulk_uses_.erase(use);
  }
  if (const auto queue = own_queues_.find(id.value()); type == ObjectType::context && queue != own_queues_.end()) {
    residency_.fix_all_of(id);
    executor_.free(ObjectType::queue, queue->second);
    free_own_slot(queue->second);
    own_queues_.erase(queue);
  }
  if (type == ObjectType::queue) free_queue(id);
  if (is_there && (type != ObjectType::memory || residency_.forget(id))) executor_.free(type, id);
  known(type).remove(id);
  --object_count_;
  count_objects(type);
  if (type == ObjectType::memory) forget_memory(id);
  if (type == ObjectType::device) {
    in_place_.erase(id.value());
    device_numbers_.erase(id.value());
  }
  if (type == ObjectType::context) {
    contexts_in_place_.erase(id.value());
    context_places_.erase(id.value());
  }
  if (type == ObjectType::queue) {
    const std::lock_guard lock{errors_mutex_};
    queue_errors_.erase(id.value());
  }
  if (type == ObjectType::kernel) kernels_.erase(id.value());
}

bool Session::may_have(std::size_t size) {
  std::uint64_t total = counters_.memory.load(std::memory_order_relaxed);
  if (__builtin_add_overflow(total, size, &total)) return false;
  if (!residency_.is_on()) return terms_.memory == 0 || total <= terms_.memory;
  return residency_.may_have(total);
}

void Session::count_memory(ObjectId id, std::size_t size) {
  memories_[id.value()].counted = size;
  Counters::add(counters_.memory, size);
  counters_.memory_peak.store(
      std::max(counters_.memory_peak.load(std::memory_order_relaxed), counters_.memory.load(std::memory_order_relaxed)),
      std::memory_order_relaxed);
}

void Session::forget_memory(ObjectId id) {
  ++memory_changes_;
  const auto found = memories_.find(id.value());
  if (found == memories_.end()) return;
  Counters::add(counters_.memory, -found->second.counted);
  if (found->second.counted != 0) residency_.has_less(counters_.memory.load(std::memory_order_relaxed));
  memories_.erase(found);
}

ObjectId Session::new_own_id() {
  const std::lock_guard lock{own_mutex_};
  std::uint32_t slot = 0;
  if (!free_own_slots_.empty()) {
    slot = free_own_slots_.back();
    free_own_slots_.pop_back();
  } else {
    if (own_slots_ == kOwnSlots) return {};
    slot = kMaxSlots - 1 - own_slots_++;
  }
  return ObjectId{own_generation_++, slot};
}

void Session::free_own_event(ObjectId event) {
  executor_.free(ObjectType::event, event);
  free_own_slot(event);
}

void Session::free_own_slot(ObjectId id) {
  if (!id) return;
  const std::lock_guard lock{own_mutex_};
  free_own_slots_.push_back(id.slot());
}

std::byte* Session::shared_at(std::uint64_t place, std::size_t size) const {
  if (place == 0) return nullptr;
  const std::uint64_t end = memory_ ? memory_->sizes().all() : 0;
  if (!memory_ || place < memory_->sizes().rings || place > end || size > end - place)
    throw BadMessage{"a place outside of the shared memory"};
  return memory_->rings() + place;
}

// Transfers through the bulk area are fastest if the driver knows it. Telling it takes as long as making a context, so
// that waits until a program moves data at all.
void Session::expect_bulk_use(ObjectId context, std::span<const ObjectId> devices) {
  const auto shares = [&](ObjectId device) {
    const auto fact = executor_.device_info(device, CL_DEVICE_HOST_UNIFIED_MEMORY);
    return !fact || from_bytes<cl_bool>(*fact) == CL_TRUE;
  };
  if (treats_memory_as_own() || std::none_of(devices.begin(), devices.end(), shares)) bulk_uses_[context.value()] = {};
}

void Session::note_bulk_use(ObjectId context, std::size_t size) {
  constexpr std::size_t kWorthTelling = std::size_t{1} << 20;
  const auto found = bulk_uses_.find(context.value());
  if (found == bulk_uses_.end()) return;
  BulkUse& use = found->second;
  const std::size_t before = use.bytes;
  use.bytes += size;
  if (before >= kWorthTelling || use.bytes < kWorthTelling) return;
  if (!memory_ && !own_bulk_) own_bulk_ = memory_in_pages(kPart * kParts);
  NewBuffer region;
  region.id = new_own_id();
  region.context = context;
  region.size = memory_ ? memory_->bulk().size() : own_bulk_->size();
  region.host = memory_ ? memory_->bulk().data() : own_bulk_->data();
  region.is_region = true;
  if (region.id && executor_.create_buffer(region) == CL_SUCCESS) use.region = region.id;
}

// For people who look at the session.
void Session::note_devices(std::span<const ObjectId> devices) {
  for (const ObjectId device : devices) {
    const auto fact = executor_.device_info(device, CL_DEVICE_NAME);
    if (!fact) continue;
    const std::string name = text_from_bytes(*fact);
    if (named_devices_.insert(name).second) Counters::append(counters_.devices, name + "\n");
  }
}

void Session::Queue::is_done(std::uint64_t number) {
  std::uint64_t known = done.load(std::memory_order_relaxed);
  while (known < number && !done.compare_exchange_weak(known, number, std::memory_order_acq_rel)) continue;
}

void Session::handle(const Head& head, Reader& reader) {
  if (head.kind == Kind::hello) return hello(head.number, reader);
  if (head.kind < Kind::create_context) return handle_devices(head, reader);
  if (head.kind < Kind::check_program) return handle_objects(head, reader);
  if (head.kind < Kind::flush) return handle_programs(head, reader);
  if (head.kind < Kind::send_pages) return handle_waits(head, reader);
  if (head.kind < Kind::command) return handle_pages(head, reader);
  handle_command(head, reader);
}

void Session::hello(Number number, Reader& reader) {
  (void)reader.take<std::string>();  // the client's version, for people
  // Whether data is to be packed, from the next answer on. Clients before that say nothing of it.
  const bool packs = !reader.is_at_end() && reader.take<bool>() && !memory_;
  Bytes body;
  wire::Writer writer{body};
  const auto platforms = executor_.platforms();
  // With a limit every buffer is asked for, so that the call that goes beyond it is the one that fails.
  writer(terms_.memory == 0 ? kCredit : 0, terms_.offer.size());
  for (const auto& [index, devices] : terms_.offer) {
    writer(platforms[index], executor_.describe_driver(index));
    writer(devices.size());
    for (const cl_uint device : devices) {
      const ObjectId id = new_own_id();  // a name for the time being
      executor_.name_device(index, device, id);
      writer(executor_.works_in_place(id), std::size_t{kLastDeviceQuery - kFirstDeviceQuery});
      for (cl_device_info query = kFirstDeviceQuery; query < kLastDeviceQuery; ++query) {
        auto fact = device_fact(id, query);
        if (query == CL_DEVICE_EXECUTION_CAPABILITIES && fact)
          fact = to_bytes(cl_device_exec_capabilities{CL_EXEC_KERNEL});  // native kernels never leave their process
        writer(query, fact);
      }
    }
  }
  const std::lock_guard lock{out_mutex_};
  send_locked(Kind::answer, number, body, {});
  if (packs) packer_.emplace(*stream_, pack_use());
  packs_ = packs;
}

// A device has as much memory as its tenant may have of it.
Result<Bytes> Session::device_fact(ObjectId device, cl_device_info query) {
  auto fact = executor_.device_info(device, query);
  const bool is_size = query == CL_DEVICE_GLOBAL_MEM_SIZE || query == CL_DEVICE_MAX_MEM_ALLOC_SIZE;
  if (!is_size || !fact || fact->size() != sizeof(cl_ulong)) return fact;
  auto size = from_bytes<cl_ulong>(*fact);
  if (terms_.part < 1) {
    const auto all = executor_.device_info(device, CL_DEVICE_GLOBAL_MEM_SIZE);
    if (all)
      size = std::min(size, static_cast<cl_ulong>(static_cast<double>(from_bytes<cl_ulong>(*all)) * terms_.part));
  }
  if (terms_.memory != 0) size = std::min<cl_ulong>(size, terms_.memory);
  return to_bytes(size);
}

void Session::handle_waits(const Head& head, Reader& reader) {
  const Number number = head.number;
  switch (head.kind) {
    case Kind::flush: {
      const auto queue = reader.take<ObjectId>();
      check(ObjectType::queue, queue);
      executor_.flush(queue);
      return;
    }
    case Kind::finish:
      return finish(head, reader.take<ObjectId>());
    case Kind::wait: {
      const auto events = reader.take<std::vector<ObjectId>>();
      if (events.empty()) throw BadMessage{"a wait for nothing"};
      std::vector<ObjectId> there;
      for (const ObjectId event : events) {
        if (check(ObjectType::event, event) == CL_SUCCESS) there.push_back(event);
      }
      const bool failed = there.size() != events.size();
      return aside(head, [this, number, there, failed] {
        const cl_int code = there.empty() ? CL_SUCCESS : executor_.wait(there);
        send_output();
        answer(number, failed ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : code);
      });
    }
    case Kind::event_status: {
      const auto event = reader.take<ObjectId>();
      const cl_int code = check(ObjectType::event, event);
      return answer(number, code == CL_SUCCESS ? executor_.event_status(event) : Result<cl_int>{code});
    }
    case Kind::event_profile: {
      const auto event = reader.take<ObjectId>();
      const auto query = reader.take<cl_profiling_info>();
      if (check(ObjectType::event, event) != CL_SUCCESS) return answer(number, CL_PROFILING_INFO_NOT_AVAILABLE);
      return answer(number, executor_.event_profile(event, query));
    }
    case Kind::when_event: {
      const auto event = reader.take<ObjectId>();
      const auto status = reader.take<cl_int>();
      if (const cl_int code = check(ObjectType::event, event); code != CL_SUCCESS) return answer(number, code);
      const auto reached = [this, number](cl_int now) {
        post([this, number, now] {
          send_output();
          answer(number, now);
        });
      };
      if (const cl_int code = executor_.when_event(event, status, reached); code != CL_SUCCESS) answer(number, code);
      return;
    }
    case Kind::when_idle:
      return executor_.when_idle(reader.take<Whose>(), [this, number] { post([this, number] { answer(number); }); });
    case Kind::set_queue_property: {
      const auto queue = reader.take<ObjectId>();
      const auto properties = reader.take<cl_command_queue_properties>();
      const auto enable = reader.take<cl_bool>();
      check(ObjectType::queue, queue);
      cl_command_queue_properties before = 0;
      const cl_int code = executor_.set_queue_property(queue, properties, enable, &before);
      return answer(number, code, before);
    }
    default:
      throw BadMessage{"a message of no known kind"};
  }
}

}  // namespace grus::server
