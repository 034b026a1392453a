// What of a session is in its devices' memory. Buffers that it hasn't used for long are moved out to host memory when
// the server asks for room, or the session needs it itself, and are brought back when a command needs them. Only where
// a device has memory of its own.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "command/executor.hpp"
#include "server/counters.hpp"
#include "server/handover.hpp"
#include "server/packed_memory.hpp"

namespace grus::server {

class Residency {
 public:
  using Lock = std::unique_lock<std::mutex>;
  // Sends a request to the server, false if it is gone. Null: there is none, and no limits.
  using Ask = std::function<bool(const Request&)>;
  // A buffer is another one for the driver now.
  using OnReturn = std::function<void(ObjectId)>;
  Residency(Executor& executor, Counters& counters, Ask ask, OnReturn on_return)
      : executor_{executor}, counters_{counters}, ask_{std::move(ask)}, on_return_{std::move(on_return)} {}

  bool is_on() const { return ask_ != nullptr; }

  // Whether the session may have so much in all, of what its tenant may have. And that it has less.
  bool may_have(std::uint64_t total);
  void has_less(std::uint64_t total);

  // The driver refuses a context: whether another session has made room since.
  bool get_room_for_context();

  // Of a device, by its number; the queue is the session's own. It takes room when it is used for the first time.
  enum class Kind : std::uint8_t { buffer, fixed };
  void add(const NewBuffer& order, std::uint32_t device, ObjectId queue, Kind kind);
  void fix(ObjectId id);  // it stays where it is from here on
  void fix_all_of(ObjectId context);
  // Whether there is an object of the driver's to free.
  bool forget(ObjectId id);

  // Makes all of them be in the device's memory, and stay there until the lock is let go; those that don't fit, in host
  // memory.
  enum class Excess : std::uint8_t { refused, at_host };
  cl_int use(std::span<const ObjectId> ids, Lock& lock, Excess excess = Excess::at_host);
  // Of one that is only to be made, and for which there is no room: it begins as one that was moved out. False if there
  // is no room for it there either.
  bool keep_at_host(ObjectId id, const std::byte* contents, const Lock& lock);
  void pin(ObjectId id, const Lock& lock);  // beyond that
  void unpin(ObjectId id);

  // What the server says.
  void hear(const MemoryWord& word);
  void move_out(const MemoryWord& word);  // waits for the device
  // Whether it was asked to, and waits for the lock of who uses something. And until it is done.
  bool is_to_move_out() const { return moving_out_ != 0; }
  void wait_until_moved_out();

 private:
  struct Record {
    NewBuffer order;
    std::uint32_t device = 0;
    ObjectId queue;
    enum class Where : std::uint8_t { nowhere_yet, device, host, used_at_host } where = Where::nowhere_yet;
    bool is_missing() const { return where == Where::nowhere_yet || where == Where::host; }
    bool is_fixed = false;
    int pins = 0;
    std::uint64_t used = 0;  // the last use of it
    // At the host: as it is, or packed.
    std::shared_ptr<HostMemory> copy;
    PackedMemory packed;
    std::uint64_t kept() const { return copy ? order.size : packed.size(); }
  };
  // Reads a part of it, false if that fails.
  using Source = std::function<bool(Range, std::byte*)>;

  bool hear_of_quota();
  MemoryWord ask(Lock& lock, const Request& request);
  cl_int get_room(Lock& lock, std::uint32_t device, std::uint64_t wanted, bool& must);
  cl_int bring(Record& record);
  cl_int bring_some(std::span<Record* const> missing, std::uint32_t device);
  cl_int leave_at_host(Record& record);
  // But not by what the command needs that is waited for.
  enum class Spare : std::uint8_t { nothing, what_is_needed };
  void make_room(std::uint32_t device, std::uint64_t at_most, Spare spare);
  bool take_away(Record& record);
  bool store(Record& record, const Source& read);
  cl_int restore(Record& record);
  bool unpack(Record& record);
  void let_go(Record& record);
  bool wait_until_idle();
  void count();

  Executor& executor_;
  Counters& counters_;
  const Ask ask_;
  const OnReturn on_return_;
  std::atomic<int> moving_out_{0};  // threads that do so, or wait for another that does
  std::mutex mutex_;                // guards what follows, and what a command's objects are until the driver has it
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, Record> records_;
  std::array<std::uint64_t, LeasePage::kDevices> here_{};     // bytes on the device
  std::array<std::uint64_t, LeasePage::kDevices> allowed_{};  // at most
  std::uint64_t uses_ = 0;
  std::uint64_t total_ = 0;      // that the session may have
  std::uint64_t quotas_ = 0;     // changes of the quota that it knows of
  bool has_quota_ = false;       // so others of the same tenant want to know if it has less
  std::uint64_t out_ = 0;        // bytes that were moved out
  std::uint64_t kept_ = 0;       // bytes that they take at the host
  std::uint64_t swap_left_ = 0;  // bytes that others may take
  std::uint64_t asked_ = 0;      // the number of the last request
  bool is_granted_ = false;      // what was asked for, and isn't used yet
  MemoryWord answer_{};
};

}  // namespace grus::server
