// One client's session at the worker: its messages, checked and handed to the executor in the order in which they came.
// A message that makes no sense ends the session; an error of OpenCL's is told to the client.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "channel/fields.hpp"
#include "channel/handshake.hpp"
#include "channel/input.hpp"
#include "command/executor.hpp"
#include "executor/turn.hpp"
#include "memory/copy.hpp"
#include "server/counters.hpp"
#include "server/helpers.hpp"
#include "server/known_objects.hpp"
#include "server/offer.hpp"
#include "server/residency.hpp"

namespace grus::server {

class Session {
 public:
  struct Terms {
    Offer offer;
    std::uint64_t memory = 0;             // bytes in buffers and images, at most; 0: as much as there is
    double part = 1;                      // of a device's memory, as the client is told
    bool moves_out = false;               // what isn't used, where a device is full
    std::size_t objects = 0;              // at a time, at most; 0: as many as there are names for
    std::chrono::seconds build_limit{0};  // for a build; 0: none
    int output = -1;                      // a descriptor that gives what kernels print
    std::uint64_t output_limit = 0;       // bytes of that, at most; 0: none
    std::uint64_t number = 0;             // of the session, at the server
    // Asks for a connection to a session of another server, which is_connected is told of; false if nobody can be
    // asked. Null: none can be had.
    std::function<bool(const std::string& address, channel::Security security, std::uint64_t session)> connect =
        nullptr;
    // What commands of a queue wait for, where the device is shared.
    std::function<Turn*(ObjectId queue)> turn_at = nullptr;
    std::function<bool(const command::Launch& launch, ObjectId queue)> goes_in_pieces = nullptr;
    // Asks the server for memory, which hear() is told of. Null: none has to be asked for.
    Residency::Ask ask = nullptr;
    // Ends the process. Null: it goes on, whatever a build takes.
    std::function<void(const std::string& why)> end = nullptr;
  };
  Session(channel::Opened channel, Executor& executor, Terms terms, Counters& counters);

  // Until the client is gone, or misbehaves; says which.
  std::string run();
  // The same, whatever the session does meanwhile, of a client that is gone. On a thread of its own.
  std::string wait_for_end();
  void send_output();
  // The client is told, if that is possible soon. On a thread of its own.
  void tell_end(const std::string& why);

  // Of another server's worker, who says that it has a ticket. On a thread of its own.
  void offer_pages(channel::Descriptor socket, channel::Security security);
  void is_connected(channel::Descriptor socket);

  // What the server says about memory. To move some out waits for the device, on a thread of its own.
  void hear(const MemoryWord& word) { residency_.hear(word); }
  void move_out(const MemoryWord& word) { residency_.move_out(word); }
  void step_aside();  // if it has nothing to do
  // Of a launch that is sent in pieces, between two of them: who asks about events is answered meanwhile.
  // Others' memory may be wanted, too: then it lets go of what it uses, and comes back to it.
  cl_int wait_for_room(Turn& turn);

 private:
  using Number = std::uint64_t;
  using Data = std::shared_ptr<std::byte[]>;
  static constexpr std::size_t kHelpers = 64;
  // What is queued to clear an object, or was.
  struct Clearing {
    ObjectId queue;
    ObjectId event;  // none once it is known to be done, or to have failed
    cl_int status = CL_QUEUED;
  };
  struct Memory {
    std::size_t size = 0;
    std::size_t element_size = 0;  // images
    cl_mem_object_type type = CL_MEM_OBJECT_BUFFER;
    std::byte* host = nullptr;  // where its bytes are, if its device works on them there
    std::size_t counted = 0;    // bytes of its own
    Triple region{};            // images
    ObjectId context{};
    // From `own_until` on it may hold what another session left in the device's memory. What is before that is written
    // in a queue, by its commands up to a number.
    bool may_be_foreign = false;
    std::size_t own_until = 0;
    ObjectId written_in{};
    std::uint64_t written_by = 0;
    std::shared_ptr<Clearing> clearing = nullptr;  // of it, or of what it is a view of
  };
  // Commands are counted as they come; all up to `done` are known to be finished.
  struct Queue {
    bool in_order = true;
    bool is_profiled = false;
    bool is_called_back = false;  // the driver tells of a command's end at once
    std::uint64_t last = 0;       // of the thread that reads messages
    std::atomic<std::uint64_t> done{0};
    std::shared_ptr<std::vector<Data>> small = std::make_shared<std::vector<Data>>();  // of writes, kept for the device
    std::size_t small_bytes = 0;
    Helpers waiter{1};  // in order, for commands that only the session waits for

    bool is_idle() const { return done.load(std::memory_order_acquire) == last; }
    void is_done(std::uint64_t number);
  };
  struct Kernel {
    std::vector<Argument> arguments;
    std::uint64_t returns = 0;     // of buffers among them, that were moved out
    std::uint64_t checked_at = 0;  // the change of memories at which they were looked at
    bool has_unclear = false;      // one of them has to be cleared first, or is about to be
    cl_int code = CL_SUCCESS;
  };
  // Where a command goes, as the client said it.
  struct Place {
    ObjectId queue;
    ObjectId event;
    Blocking blocking = Blocking::no;
    std::span<const ObjectId> waits;
    cl_int code = CL_SUCCESS;  // why it can't be carried out: something that it needs has failed
    bool goes_on = false;      // it writes what needn't be cleared for that
  };

  // A command that moves data between the client's memory and an object.
  template <typename Command>
  struct Transfer {
    Place place;
    Command command{};
    std::size_t size = 0;         // packed
    std::byte* shared = nullptr;  // the client's side of it, if both can see that
    cl_int code = CL_SUCCESS;
    Residency::Lock use{};  // of the object
  };

  void take(const channel::Head& head, Bytes& body);
  void handle_now(const channel::Head& head, const Bytes& body);
  void handle_deferred(const channel::Head& head, const Bytes& body);
  Turn* turn_for(const channel::Head& head, const Bytes& body);
  static bool asks_about_events(const channel::Head& head);
  bool are_events_known(const channel::Head& head, const Bytes& body);
  void answer_questions();
  void handle(const channel::Head& head, wire::Reader& reader);
  void hello(Number number, wire::Reader& reader);
  void handle_devices(const channel::Head& head, wire::Reader& reader);
  void handle_objects(const channel::Head& head, wire::Reader& reader);
  void handle_programs(const channel::Head& head, wire::Reader& reader);
  void handle_waits(const channel::Head& head, wire::Reader& reader);
  void handle_pages(const channel::Head& head, wire::Reader& reader);
  // For another server: what has changed of a part of a buffer; or all of it, to a place that it has there.
  struct PagesTask {
    Number number;
    memory::Part part;
    memory::Comparison how;
    memory::Round round;
    std::size_t size;  // of the buffer
    ObjectId to;
    std::uint64_t to_offset;
  };
  void send_pages(const PagesTask& task);
  void take_run(channel::Input& input, ObjectId id, const Range& range, bool has_data, ObjectId queue);
  void take_pages(Number number, ObjectId queue);
  std::string connect_pages(const std::string& address, channel::Security security, const channel::Ticket& ticket);
  void end_pages();
  void handle_command(const channel::Head& head, wire::Reader& reader);
  template <std::size_t kIndex>
  void handle_command_from(const channel::Head& head, wire::Reader& reader);

  template <typename Command>
  void carry_out(const channel::Head& head, wire::Reader& reader);
  void launch(const channel::Head& head, wire::Reader& reader);
  bool is_finished_next(ObjectId queue);
  void finish(const channel::Head& head, ObjectId queue);
  template <typename Command>
  Transfer<Command> read_transfer(wire::Reader& reader);
  template <typename Command>
  void read(const channel::Head& head, wire::Reader& reader);
  template <typename Command>
  void write(const channel::Head& head, wire::Reader& reader);
  template <typename Command>
  void write_from(const Transfer<Command>& transfer, const void* from, std::function<void()> done, bool tell);
  void when_done(ObjectId queue, ObjectId event, ObjectId own, std::function<void(cl_int)> call);
  template <typename Command>
  bool goes_in_parts(const Transfer<Command>& transfer) const;
  std::byte* next_part();
  ObjectId new_part_event();
  void forget_part_event();
  void write_in_parts(const Transfer<command::Write>& transfer);
  void read_in_parts(Number number, const Transfer<command::Read>& transfer);
  template <typename Map>
  void map(wire::Reader& reader);
  template <typename Command>
  std::byte* place_in_object(const Transfer<Command>& transfer) const;
  void mark_done(const Place& place);
  void free_queue(ObjectId id);
  void expect_bulk_use(ObjectId context, std::span<const ObjectId> devices);
  void note_bulk_use(ObjectId context, std::size_t size);
  const OfferedPlatform& offered_platform(std::uint32_t number) const;
  void note_devices(std::span<const ObjectId> devices);
  cl_int create_buffer(const channel::Head& head, NewBuffer& order);
  void build(Number number, const BuildOrder& order, bool only_check);
  // Calls visit with everything that a build uses.
  template <typename Visit>
  static void each_used(const BuildOrder& order, Visit visit);
  Place read_place(wire::Reader& reader);
  void note_result(const Place& place, cl_int code);

  // The object must be there; what became of its creation.
  cl_int check(ObjectType type, ObjectId id);
  void check_all(ObjectType type, std::span<const ObjectId> ids);
  // The id is to name a new object. Asked before all else, and before the executor, which believes it.
  void check_new(ObjectType type, ObjectId id);
  void create(ObjectType type, ObjectId id, cl_int code);
  void create(const channel::Head& head, ObjectType type, ObjectId id, cl_int code);  // nobody may wait for an answer
  void count_objects(ObjectType type);
  void end_over(const std::exception& error);
  void end_for(const std::string& why);
  KnownObjects& known(ObjectType type) { return objects_[static_cast<std::size_t>(type)]; }
  void free(ObjectType type, ObjectId id);
  void check_arguments(Kernel& kernel);
  // Whether the session may have so much more.
  bool may_have(std::size_t size);
  void count_memory(ObjectId id, std::size_t size);
  void forget_memory(ObjectId id);
  template <typename Command>
  cl_int check_memories(const Command& command);
  // Before a command uses its objects: they are there, until the lock is let go, and nobody sees what others left
  // there.
  template <typename Command>
  cl_int prepare(const Command& command, Place& place, Residency::Lock& use);
  cl_int use_arguments(const Kernel& kernel, Residency::Lock& use);
  cl_int prepare_arguments(Kernel& kernel, Place& place, Residency::Lock& use);
  void note_return(ObjectId buffer);
  cl_int hold_for_view(ObjectId id, Residency::Lock& use);
  std::uint32_t number_of(std::uint32_t platform, cl_uint index) const;
  void note_room(const NewBuffer& order, Residency::Kind kind);
  Result<Bytes> device_fact(ObjectId device, cl_device_info query);
  cl_int clear_before(ObjectId id, Place& place);
  cl_int clear_arguments(Kernel& kernel, Place& place);
  cl_int clear_for_view(ObjectId id);
  void clear_for_pages(ObjectId id, ObjectId queue);
  cl_int clear(ObjectId id, Memory& memory, ObjectId queue);
  bool is_clear(Memory& memory);
  cl_int status_of(Clearing& clearing);
  bool is_written(const Memory& memory) const;
  bool goes_on(ObjectId id, const Range& range, ObjectId queue) const;
  void note_written(ObjectId id, const Range& range, ObjectId queue);
  template <typename Command>
  void note_result_of(const Command& command, const Place& place, cl_int code);
  void settle_what_is_written_in(ObjectId queue);
  ObjectId own_queue_of(ObjectId context);
  cl_int with_room(const std::function<cl_int()>& make);
  template <typename Command>
  void check_ranges(const Command& command) const;
  void check_range(ObjectId memory, std::size_t offset, std::size_t size) const;
  ObjectId new_own_id();
  void free_own_event(ObjectId event);
  void free_own_slot(ObjectId id);
  // What the client calls a place in the memory that both share.
  std::byte* shared_at(std::uint64_t place, std::size_t size) const;
  static void expect_bulk(std::size_t size, std::size_t expected);
  void skip_bulk(std::size_t size);
  // Null if there is no memory left.
  static Data allocate(std::size_t size) { return Data{new (std::nothrow) std::byte[size]}; }
  // For the bytes of a transfer, which are kept here between the client and the device: waits while there are many.
  void hold(std::size_t size);
  void let_go(std::size_t size);
  Data receive_image(std::size_t size, std::size_t read_by_driver);
  static std::size_t most_bytes(const cl_image_desc& desc);

  template <typename... Values>
  void answer(Number number, const Values&... values) {
    send(channel::Kind::answer, number, {}, values...);
  }
  template <typename... Values>
  void send(channel::Kind kind, Number number, std::span<const std::byte> bulk, const Values&... values) {
    if (number == 0 && kind == channel::Kind::answer) return;
    Bytes body;
    wire::Writer{body}(values...);
    send_message(kind, number, body, bulk);
  }
  void send_message(channel::Kind kind, Number number, const Bytes& body, std::span<const std::byte> bulk);
  void send_locked(channel::Kind kind, Number number, const Bytes& body, std::span<const std::byte> bulk);
  bool goes_in_blocks(std::size_t bulk) const { return packer_ && bulk >= channel::kInBlocksFrom; }
  void send_blocks(std::span<const std::byte> data);
  // The client has asked for it; the server's environment can only ask for more.
  static channel::Packer::Use pack_use() {
    using Use = channel::Packer::Use;
    return std::max(Use::where_it_wins, channel::Packer::from_environment());
  }
  void post(std::function<void()> job);  // for the thread that sends what vendors' threads have finished
  void aside(const channel::Head& head, std::function<void()> job);

  const std::unique_ptr<channel::Stream> stream_;
  const std::shared_ptr<channel::SharedMemory> memory_;  // null over a network
  std::atomic<bool> packs_{false};                       // as the client wishes
  channel::Input input_;
  Executor& executor_;
  const Terms terms_;
  Counters& counters_;
  std::mutex output_mutex_;                // keeps what is printed in order, and guards what follows
  std::uint64_t printed_ = 0;              // bytes
  std::mutex out_mutex_;                   // keeps messages apart, and guards what follows
  std::optional<channel::Packer> packer_;  // if the client wants data packed, where that wins

  KnownObjects objects_[8];  // by type
  std::size_t object_count_ = 0;
  cl_int untold_failure_ = CL_SUCCESS;  // of a creation, the first
  std::vector<ObjectId> waits_;         // of the command that is read
  std::unordered_map<std::uint64_t, Memory> memories_;
  std::unordered_map<std::uint64_t, Kernel> kernels_;
  std::unordered_set<std::uint64_t> in_place_;  // devices
  std::unordered_set<std::string> named_devices_;
  std::unordered_map<std::uint64_t, bool> contexts_in_place_;
  struct ContextPlace {
    ObjectId device;           // its first
    std::uint32_t number = 0;  // by which the server knows that
    bool is_one_device = false;
  };
  std::unordered_map<std::uint64_t, ContextPlace> context_places_;
  std::unordered_map<std::uint64_t, std::uint32_t> device_numbers_;
  std::vector<ObjectId> used_;                              // by the command that is handled
  std::unordered_map<std::uint64_t, ObjectId> own_queues_;  // by context
  std::deque<std::shared_ptr<Clearing>> clearings_;         // the oldest first
  std::vector<ObjectId> past_clears_;                       // events that the command in hand may still wait for
  struct BulkUse {
    std::size_t bytes = 0;  // that came and went so far
    ObjectId region;        // the bulk area as the driver knows it, once it is worth it
  };
  std::unordered_map<std::uint64_t, BulkUse> bulk_uses_;    // by context, if its devices have memory of their own
  std::uint64_t memory_changes_ = 1;                        // buffers made or freed so far
  std::unordered_map<std::uint64_t, cl_int> queue_errors_;  // not told yet; guarded by errors_mutex_
  std::mutex errors_mutex_;

  Residency residency_;

  std::mutex builds_mutex_;                                     // guards what follows
  std::multiset<std::pair<ObjectType, std::uint64_t>> in_use_;  // by builds

  std::mutex own_mutex_;  // guards what follows
  std::condition_variable held_less_;
  std::size_t held_ = 0;  // bytes of writes that the device has not taken yet, and of reads that the client hasn't
  std::vector<std::uint32_t> free_own_slots_;
  std::uint32_t own_slots_ = 0;
  std::uint64_t own_generation_ = 1;

  static constexpr std::size_t kPart = std::size_t{4} << 20;
  static constexpr std::size_t kParts = 4;
  std::shared_ptr<HostMemory> own_bulk_;  // over a network, for devices with memory of their own: in parts
  std::array<ObjectId, kParts> part_events_;
  std::size_t part_ = 0;

  std::mutex sending_mutex_;  // guards what follows, while pages are sent
  std::unique_ptr<channel::Stream> pages_out_;
  std::optional<channel::Packer> page_packer_;
  std::unique_ptr<memory::Conveyor> conveyor_;
  std::map<std::uint64_t, memory::SentPages> sent_pages_;  // by memory
  std::mutex pages_mutex_;                                 // guards what follows
  std::condition_variable pages_changed_;
  std::optional<channel::Ticket> ticket_;  // of who may bring pages, once
  std::unique_ptr<channel::Stream> pages_in_;
  std::optional<channel::Descriptor> connected_;
  Data taken_;  // of the thread that reads messages: pages on their way to the device

  Data scratch_;  // of blocking reads
  std::size_t scratch_size_ = 0;
  // What threads do here uses all of the above, and these in this order.
  Helpers sender_{1};  // in order
  std::unordered_map<std::uint64_t, std::shared_ptr<Queue>> queues_;
  // What was done before an answer is seen by who handles what the client asks for once it has that answer.
  std::atomic<std::uint64_t> answers_{0};
  Helpers helpers_{kHelpers};
  std::mutex state_mutex_;  // guards what handling a message changes
  std::condition_variable none_deferred_;
  struct Question {
    channel::Head head;
    Bytes body;
  };
  std::vector<Question> questions_;  // about events whose commands are deferred
  std::size_t deferred_ = 0;         // messages that wait for those before them, the first for its turn at a device
  bool is_deferred_ = false;         // the one that is handled just now
  bool takes_long_ = false;          // it wasn't, and has to be
  // A launch that is sent in pieces.
  struct Cut {
    command::Launch& launch;
    Kernel& kernel;
    Residency::Lock& use;
    std::chrono::steady_clock::time_point since;  // it uses its memory
  };
  Cut* cut_ = nullptr;
  ObjectId awaited_;      // the event of a launch that the message behind it waits for
  std::string why_over_;  // what was wrong with one of them
  Helpers deferring_{1};  // in order
};

}  // namespace grus::server
