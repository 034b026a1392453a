// Session: memory that goes straight from one server to another when a session moves. The destination's session gives
// its client a ticket; the source's connects with that, compares pages and sends those that changed. They can only be
// written to buffers of the session that the ticket is for.
#include <chrono>

#include "base/log.hpp"
#include "server/session.hpp"

namespace grus::server {

using channel::Head;
using channel::Kind;
using wire::BadMessage;
using wire::Reader;

namespace {

constexpr std::chrono::seconds kPatienceToMeet{5};
constexpr std::chrono::seconds kPatienceWithSender{10};
constexpr std::size_t kLargestRun = memory::kChunk;

// What is before pages on the way. Without data they are cleared; one of no size says that all has been sent.
struct Run {
  enum class Data : std::uint64_t { none, plain, in_blocks };
  ObjectId memory;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  Data data = Data::none;
};

void send_run(channel::Stream& stream, channel::Packer* packer, Run run, const std::byte* data) {
  if (!packer || !data || run.size < channel::kInBlocksFrom) {
    iovec parts[2] = {{&run, sizeof run}, {const_cast<std::byte*>(data), data ? run.size : 0}};
    return stream.send({parts, data ? 2U : 1U});
  }
  run.data = Run::Data::in_blocks;
  iovec begin{&run, sizeof run};
  stream.send({&begin, 1});
  packer->send({data, run.size}, [&](std::span<iovec> block) { stream.send(block); });
}

}  // namespace

void Session::offer_pages(channel::Descriptor socket, channel::Security security) {
  std::optional<channel::Ticket> ticket;
  {
    const std::lock_guard lock{pages_mutex_};
    ticket = ticket_;
  }
  if (!ticket) return;
  try {
    auto stream = channel::welcome_pages(std::move(socket), security, *ticket);
    const std::lock_guard lock{pages_mutex_};
    if (!ticket_ || ticket_->key != ticket->key) return;
    ticket_.reset();
    pages_in_ = std::move(stream);
    pages_changed_.notify_all();
  } catch (const channel::Lost& lost) {
    log::warn("serve", "somebody with pages was refused: {}", lost.what());
  }
}

void Session::is_connected(channel::Descriptor socket) {
  const std::lock_guard lock{pages_mutex_};
  connected_ = std::move(socket);
  pages_changed_.notify_all();
}

std::string Session::connect_pages(const std::string& address, channel::Security security,
                                   const channel::Ticket& ticket) {
  const std::lock_guard sending{sending_mutex_};
  page_packer_.reset();
  pages_out_.reset();
  sent_pages_.clear();
  channel::Descriptor socket;
  {
    std::unique_lock lock{pages_mutex_};
    connected_.reset();
    if (!terms_.connect || !terms_.connect(address, security, ticket.session))
      return "this server connects to no other";
    if (!pages_changed_.wait_for(lock, kPatienceToMeet, [this] { return connected_.has_value(); }))
      return "it took too long to connect";
    socket = std::move(*connected_);
    connected_.reset();
  }
  if (socket.get() < 0) return fmt::format("{} can't be reached from there", address);
  try {
    pages_out_ = channel::open_for_pages(std::move(socket), security, ticket);
    if (packs_) page_packer_.emplace(*pages_out_, pack_use());
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

void Session::send_pages(const PagesTask& task) {
  const memory::Part& part = task.part;
  memory::Copied sum;
  cl_int code = CL_SUCCESS;
  const std::lock_guard sending{sending_mutex_};
  try {
    if (!pages_out_) throw channel::Lost{"there is no other server"};
    if (!conveyor_) conveyor_ = std::make_unique<memory::Conveyor>(memory::kChunk, memory::Conveyor::Overlap::on);
    memory::SentPages* const pages =
        task.to ? nullptr : &sent_pages_.try_emplace(part.buffer.value(), task.size, task.how).first->second;
    const auto write = [this, &task](ObjectId buffer, Range range, const std::byte* from) {
      if (task.to) {
        buffer = task.to;
        range.offset += task.to_offset - task.part.range.offset;
      }
      const auto data = from ? Run::Data::plain : Run::Data::none;
      send_run(*pages_out_, page_packer_ ? &*page_packer_ : nullptr, {buffer, range.offset, range.size, data}, from);
      Counters::add(counters_.pages_out, from ? range.size : 0);
    };
    memory::copy_part(part, *conveyor_, pages, task.round, write, [&](const memory::Copied& more) { sum += more; });
    conveyor_->finish();
    send_run(*pages_out_, nullptr, {}, nullptr);
  } catch (const std::exception& error) {
    log::warn("serve", "a session's memory can't be sent: {}", error.what());
    conveyor_.reset();
    page_packer_.reset();
    pages_out_.reset();
    code = CL_OUT_OF_RESOURCES;
  }
  residency_.unpin(part.buffer);
  {
    const std::lock_guard lock{builds_mutex_};
    in_use_.erase(in_use_.find({ObjectType::memory, part.buffer.value()}));
    in_use_.erase(in_use_.find({ObjectType::queue, part.queue.value()}));
  }
  answer(task.number, code, sum.read, sum.sent, sum.zero, sum.never_sent, sum.sampled);
}

// One stretch, to where it belongs.
void Session::take_run(channel::Input& input, ObjectId id, const Range& range, bool has_data, ObjectId queue) {
  if (check(ObjectType::memory, id) != CL_SUCCESS || range.size > kLargestRun) throw BadMessage{"pages of no buffer"};
  check_range(id, range.offset, range.size);
  const Memory& memory = memories_[id.value()];
  if (memory.type != CL_MEM_OBJECT_BUFFER) throw BadMessage{"pages of no buffer"};
  Residency::Lock use;
  memory::check(residency_.use({&id, 1}, use), "finding room");
  const bool is_next = goes_on(id, range, queue);
  if (!is_next) clear_for_pages(id, queue);
  const Placement placement{queue, {}, {}, Blocking::yes};
  if (has_data && memory.host) return input.read(memory.host + range.offset, range.size);
  if (has_data) {
    if (!taken_) taken_ = allocate(kLargestRun);
    if (!taken_) throw std::bad_alloc{};
    input.read(taken_.get(), range.size);
    memory::check(executor_.submit(command::Write{{id}, range, taken_.get()}, placement), "writing memory");
  } else {
    memory::check(executor_.submit(memory::zeroes(id, range), placement), "clearing memory");
  }
  if (is_next) note_written(id, range, queue);
}

// The session has nothing else to do meanwhile: its client waits for this.
void Session::take_pages(Number number, ObjectId queue) {
  std::unique_ptr<channel::Stream> stream;
  {
    std::unique_lock lock{pages_mutex_};
    pages_changed_.wait_for(lock, kPatienceToMeet, [this] { return pages_in_ || !ticket_; });
    stream = std::move(pages_in_);
  }
  if (!stream) return answer(number, CL_INVALID_OPERATION);
  try {
    channel::Input input{*stream};  // nothing is sent behind the last run before the client has the answer
    input.set_patience(kPatienceWithSender);
    for (;;) {
      Run run;
      input.read(&run, sizeof run);
      if (run.size == 0) break;
      const bool has_data = run.data != Run::Data::none;
      if (run.data == Run::Data::in_blocks) input.expect_blocks(run.size);
      take_run(input, run.memory, {run.offset, run.size}, has_data, queue);
      Counters::add(counters_.pages_in, has_data ? run.size : 0);
    }
    const cl_int code = executor_.finish(queue);
    const std::lock_guard lock{pages_mutex_};
    pages_in_ = std::move(stream);
    answer(number, code);
  } catch (const std::exception& error) {
    log::warn("serve", "a session's memory doesn't come: {}", error.what());
    answer(number, CL_OUT_OF_RESOURCES);
  }
}

void Session::end_pages() {
  {
    const std::lock_guard sending{sending_mutex_};
    page_packer_.reset();
    pages_out_.reset();
    conveyor_.reset();
    sent_pages_.clear();
  }
  const std::lock_guard lock{pages_mutex_};
  pages_in_.reset();
  ticket_.reset();
  taken_.reset();
}

void Session::handle_pages(const Head& head, Reader& reader) {
  switch (head.kind) {
    case Kind::expect_pages: {
      if (!terms_.connect) return answer(head.number, CL_INVALID_OPERATION);
      const std::lock_guard lock{pages_mutex_};
      pages_in_.reset();
      ticket_ = channel::new_ticket(terms_.number);
      return answer(head.number, CL_SUCCESS, ticket_->session, ticket_->key);
    }
    case Kind::connect_pages: {
      const auto address = reader.take<std::string>();
      const auto security = reader.take<bool>() ? channel::Security::tls : channel::Security::plain;
      const auto session = reader.take<std::uint64_t>();
      const channel::Ticket ticket{session, reader.take<channel::Secret>()};
      return helpers_.run([this, number = head.number, address, security, ticket] {
        answer(number, connect_pages(address, security, ticket));
      });
    }
    case Kind::send_pages: {
      const auto id = reader.take<ObjectId>();
      const auto queue = reader.take<ObjectId>();
      const auto range = reader.take<Range>();
      const auto kind = reader.take<memory::Kind>();
      const std::size_t sample = reader.take<std::uint8_t>();
      const auto at = reader.take<memory::Sample::At>();
      const auto round = reader.take<bool>() ? memory::Round::last : memory::Round::another_follows;
      const auto to = reader.take<ObjectId>();
      const auto to_offset = reader.take<std::uint64_t>();
      const bool is_odd = kind > memory::Kind::system || sample > 4 || at > memory::Sample::At::uniform;
      if (is_odd || range.offset % memory::kPage != 0) throw BadMessage{"an odd way to compare"};
      const bool is_there =
          check(ObjectType::memory, id) == CL_SUCCESS && check(ObjectType::queue, queue) == CL_SUCCESS;
      check_range(id, range.offset, range.size);
      const Memory& memory = memories_[id.value()];
      if (!is_there || memory.type != CL_MEM_OBJECT_BUFFER) throw BadMessage{"pages of no buffer"};
      {
        Residency::Lock use;
        const cl_int code = residency_.use({&id, 1}, use);
        const memory::Copied sum;
        if (code != CL_SUCCESS)
          return answer(head.number, code, sum.read, sum.sent, sum.zero, sum.never_sent, sum.sampled);
        clear_for_pages(id, queue);
        residency_.pin(id, use);
      }
      {
        const std::lock_guard lock{builds_mutex_};
        in_use_.emplace(ObjectType::memory, id.value());
        in_use_.emplace(ObjectType::queue, queue.value());
      }
      const PagesTask task{head.number, {executor_, queue, id, range}, {kind, {sample, at}}, round, memory.size, to,
                           to_offset};
      return helpers_.run([this, task] { send_pages(task); });
    }
    case Kind::take_pages: {
      const auto queue = reader.take<ObjectId>();
      if (check(ObjectType::queue, queue) != CL_SUCCESS) return answer(head.number, CL_INVALID_COMMAND_QUEUE);
      return take_pages(head.number, queue);
    }
    case Kind::end_pages:
      return end_pages();
    case Kind::moving: {
      const auto way = reader.take<MoveStage::Way>();
      if (way > MoveStage::Way::arrives) throw BadMessage{"a move that goes nowhere"};
      counters_.move_way.store(static_cast<std::uint64_t>(way), std::memory_order_relaxed);
      counters_.move_done.store(reader.take<std::uint64_t>(), std::memory_order_relaxed);
      counters_.move_all.store(reader.take<std::uint64_t>(), std::memory_order_relaxed);
      return;
    }
    case Kind::untold_failure:
      return answer(head.number, untold_failure_);
    default:
      throw BadMessage{"a message of no known kind"};
  }
}

}  // namespace grus::server
