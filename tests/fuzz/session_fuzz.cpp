// A worker's session with a client that says anything: made-up messages that mostly make sense, or plain bytes.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "channel/handshake.hpp"
#include "chooser.hpp"
#include "fake_executor.hpp"
#include "memory_stream.hpp"
#include "server/session.hpp"

namespace grus::fuzz {
namespace {

using channel::Head;
using channel::Kind;

constexpr std::size_t kMostBulk = std::size_t{1} << 17;

// The messages of a client, one after the other.
class Client {
 public:
  explicit Client(Chooser& chooser) : chooser_{chooser} {}

  Bytes all;

  void add(Kind kind, const Bytes& body, std::size_t bulk) {
    const std::uint8_t how = chooser_.byte();
    Head head{static_cast<std::uint32_t>(body.size()), kind, how % 8 == 1 ? channel::Crowd::yes : channel::Crowd::no,
              how % 4 == 0 ? 0U : ++numbers_, bulk};
    if (how == 0xff) head.bulk = chooser_.take<std::size_t>();
    if (how == 0xfd) head.in_blocks = 1;
    if (how == 0xfe) head.body = chooser_.take<std::uint16_t>();
    const auto* const start = reinterpret_cast<const std::byte*>(&head);
    all.insert(all.end(), start, start + sizeof head);
    all.insert(all.end(), body.begin(), body.end());
    all.resize(all.size() + std::min<std::size_t>(head.bulk, kMostBulk));
  }
  template <typename... Values>
  void tell(Kind kind, const Values&... values) {
    Bytes body;
    wire::Writer{body}(values...);
    add(kind, body, 0);
  }
  template <typename... Values>
  void tell_some(Kind kind) {
    Bytes body;
    write_some<Values...>(body);
    add(kind, body, 0);
  }
  template <typename New>
  void create_memory(Kind kind, std::size_t bulk, const New& order) {
    Bytes body;
    wire::Writer{body}(order, chooser_.byte() % 4 == 0 ? chooser_.take<std::size_t>() : 0);
    add(kind, body, chooser_.byte() % 2 == 0 ? bulk : 0);
  }
  template <std::size_t kIndex = 0>
  void command(std::size_t which) {
    if constexpr (kIndex < std::tuple_size_v<channel::Commands>) {
      if (which % std::tuple_size_v<channel::Commands> != kIndex) return command<kIndex + 1>(which);
      using Command = std::tuple_element_t<kIndex, channel::Commands>;
      Bytes body;
      write_some<ObjectId, ObjectId, bool, std::vector<ObjectId>>(body);
      add(channel::kind_of<Command>(), body, write<Command>(body));
    }
  }

 private:
  // One after the other, whatever the compiler: what was kept must mean the same to all.
  template <typename... Values>
  void write_some(Bytes& body) {
    wire::Writer writer{body};
    (writer(chooser_.take<Values>()), ...);
  }
  // The rest of a command's body; how much bulk comes with it.
  template <typename Command>
  std::size_t write(Bytes& body) {
    wire::Writer writer{body};
    if constexpr (std::is_same_v<Command, command::Launch>) {
      write_some<ObjectId, std::uint64_t>(body);
      const std::uint32_t arguments = chooser_.byte() % 4U;
      writer(arguments);
      for (std::uint32_t left = arguments; left != 0; --left) {
        writer(std::uint32_t{chooser_.byte() % 5U});
        writer(chooser_.take<Argument>());
      }
      const cl_uint dimensions = chooser_.byte() % 5U;
      writer(dimensions);
      for (int list = 0; list < 3; ++list) {
        const std::uint8_t has = chooser_.byte() % 2U;
        writer(has);
        for (cl_uint left = has ? dimensions : 0; left != 0; --left) writer(chooser_.take<std::size_t>());
      }
    } else if constexpr (std::is_same_v<Command, command::Migrate>) {
      write_some<std::vector<ObjectId>, cl_mem_migration_flags>(body);
    } else {
      auto command = chooser_.take<Command>();
      writer(command);
      constexpr bool kIsMap = requires { command.pointer; };
      constexpr bool kIsRead = requires { command.to = static_cast<void*>(nullptr); };
      constexpr bool kIsWrite = requires { command.from = static_cast<const void*>(nullptr); };
      if constexpr (kIsMap || kIsRead || kIsWrite)
        writer(std::uint64_t{chooser_.byte() % 4 == 0 ? chooser_.take<std::size_t>() : 0});
      if constexpr (kIsWrite) return packed_size(command);
    }
    return 0;
  }
  template <typename Command>
  static std::size_t packed_size(const Command& command) {
    if constexpr (requires { command.range; }) {
      return command.range.size;
    } else if constexpr (requires { command.rectangle; }) {
      return command.rectangle.region[0] * command.rectangle.region[1] * command.rectangle.region[2];
    } else {
      const Triple& region = command.where.region;
      return region[0] * region[1] * region[2] * FakeExecutor::kElement;
    }
  }

  Chooser& chooser_;
  std::uint64_t numbers_ = 0;
};

// What every program begins with.
void begin(Client& client) {
  constexpr ObjectId kOne{1, 1};
  client.tell(Kind::hello, std::string{"fuzz"}, false);
  client.tell(Kind::name_device, std::uint32_t{0}, cl_uint{0}, kOne);
  client.tell(Kind::create_context, kOne, std::vector{kOne}, std::uint32_t{0}, std::vector<cl_context_properties>{});
  client.tell(Kind::create_queue, kOne, kOne, kOne, std::vector<cl_queue_properties>{});
  NewBuffer buffer;
  buffer.id = kOne;
  buffer.context = kOne;
  buffer.size = 4096;
  client.tell(Kind::create_buffer, buffer, std::uint64_t{0});
  BuildOrder order;
  order.program = kOne;
  order.context = kOne;
  order.program_devices = {kOne};
  order.recipe = std::make_shared<Recipe>();
  client.tell(Kind::build, order);
  client.tell(Kind::create_kernel, kOne, kOne, std::string{"one"}, std::size_t{3});
}

void add_message(Client& client, Chooser& chooser) {
  using Id = ObjectId;
  using Ids = std::vector<ObjectId>;
  const std::uint8_t which = chooser.byte();
  if (which >= 0x80) return client.command(which);
  // Of the last four there are fewer, so that what was kept before there were any still means the same.
  const auto kind = static_cast<Kind>(which < 120 ? which % 36 : 36 + which % 4);
  switch (kind) {
    case Kind::hello:
      return client.tell_some<std::string, bool>(kind);
    case Kind::device_info:
      return client.tell_some<Id, cl_device_info>(kind);
    case Kind::name_device:
      return client.tell_some<std::uint32_t, cl_uint, Id>(kind);
    case Kind::count_sub_devices:
      return client.tell_some<Id, std::vector<cl_device_partition_property>>(kind);
    case Kind::create_sub_devices:
      return client.tell_some<Id, std::vector<cl_device_partition_property>, Ids>(kind);
    case Kind::timer:
    case Kind::device_identity:
    case Kind::program_binaries:
    case Kind::flush:
    case Kind::finish:
    case Kind::event_status:
    case Kind::watch_memory:
      return client.tell_some<Id>(kind);
    case Kind::unload_compiler:
      return client.tell_some<std::uint32_t>(kind);
    case Kind::create_context:
      return client.tell_some<Id, Ids, std::uint32_t, std::vector<cl_context_properties>>(kind);
    case Kind::create_queue:
      return client.tell_some<Id, Id, Id, std::vector<cl_queue_properties>>(kind);
    case Kind::create_buffer: {
      const auto order = chooser.take<NewBuffer>();
      return client.create_memory(kind, order.size, order);
    }
    case Kind::create_sub_buffer:
      return client.tell_some<Id, Id, cl_mem_flags, Range>(kind);
    case Kind::create_image: {
      const auto order = chooser.take<NewImage>();
      return client.create_memory(kind, order.desc.image_width * FakeExecutor::kElement, order);
    }
    case Kind::create_sampler:
      return client.tell_some<NewSampler>(kind);
    case Kind::supported_formats:
      return client.tell_some<Id, cl_mem_flags, cl_mem_object_type>(kind);
    case Kind::free: {
      const auto type = static_cast<std::uint8_t>(chooser.byte() % 9);
      return client.tell(kind, type, chooser.take<Id>());
    }
    case Kind::check_program:
    case Kind::build:
      return client.tell_some<BuildOrder>(kind);
    case Kind::kernel_facts:
      return client.tell_some<Id, std::string>(kind);
    case Kind::create_kernel:
      return client.tell_some<Id, Id, std::string, std::size_t>(kind);
    case Kind::kernel_group_info:
      return client.tell_some<Id, Id, cl_kernel_work_group_info>(kind);
    case Kind::kernel_sub_group_info:
      return client.tell_some<Id, Id, cl_kernel_sub_group_info, Bytes, std::size_t>(kind);
    case Kind::try_argument:
      return client.tell_some<Id, cl_uint, std::size_t, bool>(kind);
    case Kind::wait:
      return client.tell_some<Ids>(kind);
    case Kind::event_profile:
      return client.tell_some<Id, cl_profiling_info>(kind);
    case Kind::when_event:
      return client.tell_some<Id, cl_int>(kind);
    case Kind::when_idle:
      return client.tell_some<Whose>(kind);
    case Kind::send_pages:
      return client.tell_some<Id, Id, Range, std::uint8_t, std::uint8_t, std::uint8_t, bool, Id, std::uint64_t>(kind);
    case Kind::take_pages:
      return client.tell_some<Id>(kind);
    case Kind::expect_pages:
    case Kind::untold_failure:
      return client.tell(kind);
    case Kind::connect_pages:
      return client.tell_some<std::string, bool, std::uint64_t, channel::Secret>(kind);
    case Kind::end_pages:
      return client.tell(kind);
    case Kind::moving:
      return client.tell_some<std::uint8_t, std::uint64_t, std::uint64_t>(kind);
    case Kind::set_queue_property:
      return client.tell_some<Id, cl_command_queue_properties, cl_bool>(kind);
    default:
      return client.tell_some<std::uint64_t>(chooser.take<Kind>());
  }
}

// A device that others want, too: it is theirs every few times that somebody looks, and back for who waits for it.
class FakeTurn final : public Turn {
 public:
  void give_back() { stop(); }
  Turn* next_look() {
    if (++looks_ % 4 == 0) stop();
    return this;
  }

 private:
  void take() override { open(); }
  bool is_wanted() const override { return true; }
  bool is_recalled() const override { return false; }

  std::atomic<unsigned> looks_{0};
};

// A server whose memory others want, too: every few questions, something is to be moved out or the quota changes.
class FakeServer {
 public:
  FakeServer(std::uint64_t most, server::Counters& counters) : most_{most}, counters_{counters} {}

  server::Session* session = nullptr;

  bool ask(const server::Request& request) {
    answering_.run([this, request] { answer(request); });
    return true;
  }
  // Before the session goes. Whoever of it still asks is answered.
  void stop_wanting() {
    {
      const std::lock_guard lock{mutex_};
      wants_ = false;
    }
    moving_out_.reset();
  }

 private:
  using Word = server::MemoryWord;

  void answer(const server::Request& request) {
    const std::uint64_t given = request.bytes <= most_ ? request.bytes : 0;
    want_some(request.device);
    Word word{.device = request.device, .number = request.number, .bytes = given, .swap_left = most_};
    switch (request.what) {
      case server::Request::What::total:
        word.what = Word::What::total;
        break;
      case server::Request::What::room:
        word.what = given != 0 ? Word::What::granted : Word::What::refused;
        break;
      case server::Request::What::context:
        word.what = request.number % 2 != 0 ? Word::What::made_room : Word::What::refused;
        break;
      default:
        return;
    }
    session->hear(word);
  }
  void want_some(std::uint32_t device) {
    const std::lock_guard lock{mutex_};
    if (!wants_ || ++asked_ % 2 != 0) return;
    if (asked_ % 8 == 0) ++counters_.quotas;
    moving_out_->run([this, device] { session->move_out({.what = Word::What::move_out, .device = device}); });
  }

  const std::uint64_t most_;
  server::Counters& counters_;
  std::mutex mutex_;  // guards what follows
  bool wants_ = true;
  unsigned asked_ = 0;
  std::optional<server::Helpers> moving_out_{std::in_place, 1};
  server::Helpers answering_{1};
};

bool goes_in_pieces(const command::Launch& launch) { return launch.dimensions == 2; }

// With room for a few objects. Kept from one run to the next: making it takes longer than a run.
const std::shared_ptr<channel::SharedMemory>& shared_memory() {
  static const auto memory = channel::SharedMemory::make({4096, 65536, 65536});
  return memory;
}

void run(std::span<const unsigned char> input) {
  static const int output = open("/dev/null", O_RDONLY | O_CLOEXEC);
  Chooser chooser{input};
  const std::uint8_t how = chooser.byte();
  const std::uint8_t more = chooser.byte();
  FakeExecutor executor{how & 1 ? FakeExecutor::Kind::in_place : FakeExecutor::Kind::own_memory,
                        how & 16 ? FakeExecutor::Pace::when_asked : FakeExecutor::Pace::at_once, more % 16U};
  Bytes all;
  if (how & 2) {
    const auto bytes = std::as_bytes(input.subspan(std::min<std::size_t>(input.size(), 2)));
    all.assign(bytes.begin(), bytes.end());
  } else {
    Client client{chooser};
    begin(client);
    while (!chooser.is_over() && client.all.size() < 8 * kMostBulk) add_message(client, chooser);
    all = std::move(client.all);
  }
  channel::Opened channel{std::make_unique<MemoryStream>(all, how & 4 ? 7U : kMostBulk),
                          how & 8 ? shared_memory() : nullptr};
  const server::Offer offer{{0, {0, 1}}};
  server::Counters counters{};
  server::Session::Terms terms{.offer = offer, .memory = how & 32 ? 65536U : 0U, .output = output};
  if (how & 64) terms.objects = 12;
  terms.moves_out = (how & 128) != 0;
  FakeServer server{FakeExecutor::kLargest, counters};
  if (more & 16) terms.ask = [&](const server::Request& request) { return server.ask(request); };
  static FakeTurn turn;  // takes longer to make than a run
  turn.give_back();
  if (more & 32) {
    terms.turn_at = [](ObjectId) { return turn.next_look(); };
    terms.goes_in_pieces = [](const command::Launch& launch, ObjectId) { return goes_in_pieces(launch); };
  }
  server::Session session{std::move(channel), executor, std::move(terms), counters};
  server.session = &session;
  if (more & 32)
    executor.on_launch = [&](const command::Launch& launch) {
      return goes_in_pieces(launch) ? session.wait_for_room(turn) : CL_SUCCESS;
    };
  session.run();
  server.stop_wanting();
}

}  // namespace
}  // namespace grus::fuzz

// A client may ask for more memory than there is, and is to be told so.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  grus::fuzz::run({data, size});
  return 0;
}
