// The session's objects, made again at another executor under the ids they have, and the switch to them.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "command/executor.hpp"
#include "memory/copy.hpp"
#include "memory/device_side.hpp"
#include "memory/direct_path.hpp"
#include "memory/image_bridge.hpp"
#include "memory/written_pages.hpp"
#include "move/inventory.hpp"

namespace grus::move {

// Something stands in the way of a move; what it says is for people.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Nothing is wrong but that the destination has no room for it.
struct NoRoom : Refused {
  using Refused::Refused;
};

// A device of the program's, and what stands for it at the destination.
struct Match {
  Device* device = nullptr;
  std::uint32_t platform = 0;
  cl_uint index = 0;
  bool shares_host_memory = false;
};

bool works_in_place(Executor& executor, const Context& context);

class Transplant {
 public:
  // The devices are named there already. Or it is nowhere: only what memory holds is kept there.
  enum class Where : std::uint8_t { somewhere, nowhere };
  // `look` is called before each build, which may take long; it may throw.
  Transplant(Executor& to, std::vector<Match> matches, Where where, memory::Comparison how,
             memory::Conveyor::Overlap overlap, std::function<void()> look)
      : to_{to},
        matches_{std::move(matches)},
        is_nowhere_{where == Where::nowhere},
        how_{how},
        overlap_{overlap},
        look_{std::move(look)} {}

  // Makes what is there and wasn't, again what was built again, and frees what is gone. While the program runs, objects
  // whose memory both sides work in are left for later: only one of them may use it at a time.
  enum class Stage : std::uint8_t { running, stopped };
  void follow(const Inventory& inventory, Stage stage);
  // Copies what the objects hold; in the end everything that changed. Says how much there was.
  memory::Copied copy(const Inventory& inventory, Stage stage, const memory::OnCopied& on_copied);
  // With the gate closed and everything drained and copied: from here on the objects are there.
  // Says which executors the session leaves.
  std::set<Executor*> take_over(const Inventory& inventory);
  // When nobody is in one of their functions: gives back what was made there.
  void leave_sources(const Inventory& inventory) noexcept;
  // Everything made there is freed.
  void undo() noexcept;

  std::uint64_t bytes_at_stake(const Inventory& inventory) const;   // that would be copied
  const std::vector<std::string>& notes() const { return notes_; }  // on how memory went
  std::uint64_t builds() const { return builds_; }                  // so far, at the destination

 private:
  enum class Home : std::uint8_t {
    shared,     // both sides work in the same memory: nothing is copied
    own,        // memory for it here
    elsewhere,  // nowhere that the program may see
  };
  struct Twin {
    Home home = Home::elsewhere;
    std::shared_ptr<HostMemory> memory;
    bool is_copied = false;
    std::unique_ptr<memory::ImageBridge> bridge;    // of an image that isn't the host's to copy
    std::unique_ptr<memory::SentPages> pages;       // of what the host compares
    std::unique_ptr<memory::DeviceTable> table;     // of what the device does
    std::unique_ptr<memory::WrittenPages> written;  // of what the system watches
    bool is_direct = false;                         // the source knows what was sent
    DirtyParts suspect{.is_all = true,
                       .ranges = {}};  // never copied, or while commands from before may have been running
    bool is_settled = false;           // copied in the stop: commands that are held back change nothing
  };
  // What is to be looked at of an object.
  struct Part {
    Memory& memory;
    Twin& twin;
    DirtyParts dirty;

    bool is_image() const { return memory.is_image() && !twin.bridge; }  // to be copied as one
    ObjectId id() const { return twin.bridge ? twin.bridge->buffer() : memory.id(); }
    std::size_t size() const { return twin.bridge ? twin.bridge->size() : memory.size; }
    bool is_written_by_host() const { return !dirty.is_all; }  // or where a command said
    std::vector<Range> ranges() const { return dirty.rounded(size(), memory::kPage); }
  };
  using Made = std::map<std::uint64_t, ObjectId>;  // by creation

  const Match& match_of(Device& device) const;
  bool shares_host_memory(const Context& context) const;
  bool both_work_in_place(const Context& context);
  void make_sub_device(Device& device);
  void make_context(Context& context);
  void make_queue(const Queue& queue);
  void make_sampler(const Sampler& sampler);
  bool make_memory(Memory& memory, Stage stage);
  static std::byte* home_of(const Memory& memory, const Twin& twin);
  cl_int make_buffer(Memory& memory, const Twin& twin);
  cl_int make_image(Memory& memory, const Twin& twin);
  Twin twin_for(Memory& memory);
  void make_program(Program& program);
  void make_kernel(Kernel& kernel);
  void build_as(const Program& program, ObjectId id, const std::shared_ptr<const Recipe>& recipe,
                const std::vector<DeviceBuild>& builds);
  template <typename T, typename Make>
  void follow_type(ObjectType type, const std::vector<Ref<T>>& objects, Make make);
  void free_gone(ObjectType type, const std::set<std::uint64_t>& there);
  void forget_twin(std::uint64_t memory);
  Queue& courier_of(Context& context);
  bool device_compares(bool shares_host_memory) const;
  memory::DeviceSide* source_side(Context& context);
  memory::DeviceSide* destination_side(Context& context);
  memory::Conveyor& conveyor_of(Context& context);
  memory::Route route_of(Context& context);
  static const std::byte* contents_here(const Memory& memory);
  std::unique_ptr<memory::WrittenPages> watch_pages(Memory& memory);
  memory::DirectPath* direct_path(Executor& from);
  bool copy_directly(const memory::Route& route, const Part& part, memory::Round round,
                     const memory::OnCopied& on_copied);
  void finish_copies(const memory::OnCopied& on_copied);
  void copy_borrowed(const Part& part, Stage stage, const Inventory& all, const memory::OnCopied& on_copied);
  void copy_one(const Part& part, Stage stage, const memory::OnCopied& on_copied);
  void bridge_image(const memory::Route& route, const Part& part);
  void copy_by_host(const memory::Route& route, const Part& part, memory::Round round,
                    const memory::OnCopied& on_copied);
  void free_sides() noexcept;
  std::optional<cl_ulong> clock_of(Executor& executor, Context& context);
  void set_clock(Context& context);
  cl_int map_again(const Memory& memory, const Mapping& mapping, const Placement& placement);
  void leave_events();
  void keep_mappings(Memory& memory, const Twin& twin, const std::shared_ptr<HostMemory>& before);

  Executor& to_;
  const std::vector<Match> matches_;
  const bool is_nowhere_;
  const memory::Comparison how_;
  const memory::Conveyor::Overlap overlap_;
  const std::function<void()> look_;
  std::map<ObjectType, Made> made_;
  bool is_unsure_ = false;                                // whether all of that is there
  std::map<std::uint64_t, Twin> twins_;                   // by memory
  std::map<std::uint64_t, std::uint64_t> build_numbers_;  // by program
  std::uint64_t builds_ = 0;
  std::map<const Context*, bool> in_place_;
  std::map<const Context*, Ref<Queue>> couriers_;  // for the copying, at both sides
  // By context; null if its device can't, or needn't.
  std::map<Context*, std::unique_ptr<memory::DeviceSide>> source_sides_;
  std::map<const Context*, std::unique_ptr<memory::DeviceSide>> destination_sides_;
  std::map<const Context*, std::unique_ptr<memory::Conveyor>> conveyors_;
  std::shared_ptr<memory::PageWatch> page_watch_;
  std::map<Executor*, std::unique_ptr<memory::DirectPath>> direct_paths_;  // by source; null if there is none
  std::map<memory::ImageBridge*, ObjectId> bridges_;  // that images are to be filled from, and the queue for that
  std::vector<std::string> notes_;
  std::set<const Context*> timed_;
  std::map<const Context*, Executor*> sources_;  // where each was
  std::map<const Device*, Executor*> sub_device_sources_;
  std::vector<std::pair<Executor*, ObjectId>> events_left_;
  std::vector<std::pair<Executor*, ObjectId>> regions_left_;
};

}  // namespace grus::move
