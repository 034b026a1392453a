#include "move/mover.hpp"

#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "base/log.hpp"
#include "command/callbacks.hpp"
#include "command/gate.hpp"
#include "command/held_builds.hpp"
#include "command/hold_back.hpp"
#include "executor/starting.hpp"
#include "move/checkpoint.hpp"
#include "move/shelf.hpp"
#include "move/slicer.hpp"
#include "move/under_way.hpp"
#include "objects/immovable.hpp"

namespace grus::move {
namespace {

using namespace std::chrono_literals;

constexpr auto kDrain = 10min;                            // a kernel may take long; nothing is lost by waiting but time
constexpr std::uint64_t kSmall = std::uint64_t{1} << 20;  // not worth another round
constexpr auto kTell = 50ms;                              // how often progress is told
constexpr double kGain = 0.7;  // a round must leave less than this part of what the one before left

std::chrono::microseconds micros(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time);
}

// An inventory is let go of inside the gate.
struct Kept {
  Inventory all;
  Kept() = default;
  explicit Kept(Inventory taken) : all{std::move(taken)} {}
  Kept(Kept&&) = default;
  Kept& operator=(Kept&& other) noexcept {
    const Gate::Entry entry{kInternalCall};
    all = std::move(other.all);
    return *this;
  }
  ~Kept() {
    const Gate::Entry entry{kInternalCall};
    all = {};
  }
};

// A suspended session's, kept until it moves somewhere. Like what follows, of the thread that moves.
std::unique_ptr<HoldBack::Everything>& g_suspended = *new std::unique_ptr<HoldBack::Everything>;

std::mutex g_whereabouts_mutex;  // guards what follows, which others ask for meanwhile
Whereabouts& g_whereabouts = *new Whereabouts;

void set_whereabouts(Whereabouts now) {
  const std::lock_guard lock{g_whereabouts_mutex};
  g_whereabouts = std::move(now);
}

Whereabouts where_it_is(const Inventory& all) {
  Whereabouts now{executors_in_use().front()->address(), {}, false};
  for (const Device* const device : all.root_devices())
    now.device += (now.device.empty() ? "" : ",") + numbers_of(*device);
  return now;
}

// What the host could still give, in bytes; as much as you like if it doesn't tell.
std::uint64_t free_host_memory() {
  std::ifstream facts{"/proc/meminfo"};
  for (std::string name; facts >> name;) {
    std::uint64_t kib = 0;
    if (name == "MemAvailable:" && facts >> kib) return kib * 1024;
  }
  return ~std::uint64_t{0};
}

// Everything that only a device can tell is asked for now.
Plan plan_for_shelf(const Inventory& all, const std::string& file) {
  Plan plan;
  plan.reasons = immovable_reasons();
  plan.destination = file.empty() ? "host memory" : file;
  plan.bytes = all.bytes();
  plan.objects = all.size();
  if (const std::uint64_t room = free_host_memory(); file.empty() && plan.bytes > room)
    plan.reasons.push_back(fmt::format("{} MiB are needed, the host has {} MiB", plan.bytes >> 20, room >> 20));
  const auto add = [&](Device& device) {
    for (cl_device_info query = CL_DEVICE_TYPE; query <= CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED; ++query)
      (void)told_of(device, query);
    plan.matches.push_back({&device, device.home.index, 0, device.limits.shares_host_memory});
  };
  for (Device* const device : all.root_devices()) add(*device);
  for (const auto& device : all.idle_devices) add(*device);
  return plan;
}

// Why pages have to be compared although the system was asked to watch them.
std::vector<std::string> notes_on_watching(const Inventory& all) {
  if (!memory::system_watches_pages())
    return {
        "this system doesn't tell which pages are written (Linux 6.7 or later does, by userfaultfd, if it lets this "
        "user): they are fingerprinted instead"};
  const bool all_in_place = std::all_of(all.contexts.begin(), all.contexts.end(), [](const auto& context) {
    return works_in_place(executor_of(*context), *context);
  });
  if (all_in_place) return {};
  return {
      "the device doesn't work in memory of the program's own process, so the system can't tell which pages it "
      "writes: they are fingerprinted instead"};
}

Inventory take_inventory() {
  const Gate::Closed closed{g_gate};
  return Inventory::take();
}

class Mover {
 public:
  Mover(const Order& order, const std::function<void(const Progress&)>& on_progress, const std::atomic<bool>& cancelled)
      : order_{order}, on_progress_{on_progress}, cancelled_{cancelled} {}

  Report run() {
    if (order_.kind == Order::Kind::restore) return restore();
    const bool keeps = order_.kind != Order::Kind::move;
    const bool is_suspended = whereabouts().is_suspended;
    if (keeps && is_suspended) throw Refused{"it is suspended already"};
    begin("plan");
    Kept kept{take_inventory()};
    if (!is_suspended) set_whereabouts(where_it_is(kept.all));
    if (keeps) {
      const std::string file = order_.kind == Order::Kind::suspend ? order_.file : "";
      report_.plan = plan_for_shelf(kept.all, file);
      auto shelf = file.empty() || order_.dry_run ? std::make_unique<Shelf>() : std::make_unique<Shelf>(file);
      shelf_ = shelf.get();
      to_ = std::move(shelf);
    } else {
      to_ = open_executor(order_.to);
      report_.plan = make_plan(kept.all, *to_, order_.device, order_.avoid);
    }
    if (!report_.plan.reasons.empty()) {
      std::string all;
      for (const auto& reason : report_.plan.reasons) all += (all.empty() ? "" : "\n") + reason;
      if (report_.plan.for_want_of_room == report_.plan.reasons.size()) throw NoRoom{all};
      throw Refused{all};
    }
    if (order_.comparison.kind == memory::Kind::system) report_.plan.notes = notes_on_watching(kept.all);
    if (order_.kind == Order::Kind::checkpoint) expect_room_for_checkpoint(order_.file);
    if (order_.dry_run) return std::move(report_);
    if (!is_suspended) wait_for_builds(kept);  // else they wait for this
    using Overlap = memory::Conveyor::Overlap;
    transplant_.emplace(*to_, report_.plan.matches, keeps ? Transplant::Where::nowhere : Transplant::Where::somewhere,
                        order_.comparison, order_.overlap ? Overlap::on : Overlap::off, [this] { look(); });
    try {
      begin("prepare");
      slicer_ = std::make_unique<Slicer>();
      transplant_->follow(kept.all, Transplant::Stage::running);
      copy_while_running(kept);
      wait_for_backlog();
      catch_up(kept);
      stop(kept);
      held_builds_.reset();
      if (order_.kind == Order::Kind::checkpoint) {
        begin("write");
        write_checkpoint(order_.file, *shelf_, kept.all);
        transplant_->undo();
        note_end();
        report_.phases.back().end = Clock::now();
        return std::move(report_);
      }
    } catch (...) {
      slicer_.reset();
      held_builds_.reset();
      transplant_->undo();
      note_end();
      throw;
    }
    const auto& notes = transplant_->notes();
    report_.plan.notes.insert(report_.plan.notes.end(), notes.begin(), notes.end());
    release_source();
    note_end();
    report_.phases.back().end = Clock::now();
    return std::move(report_);
  }

 private:
  void begin(const char* name) {
    const auto now = Clock::now();
    if (!report_.phases.empty()) report_.phases.back().end = now;
    report_.phases.push_back({name, now, now, {}});
    progress_ = {name, 0, 0, rate_, predicted_};
    on_progress_(progress_);
    check_cancelled();
    note_move();
  }
  // For those who look after the devices. Not in the stop, in which every message counts.
  void note_move() {
    if (is_stopped_ || !transplant_) return;
    const auto stage = [this](MoveStage::Way way) { return MoveStage{way, progress_.done, progress_.all}; };
    for (Executor* const source : executors_in_use()) {
      if (source != to_.get()) source->note_move(stage(MoveStage::Way::leaves));
    }
    if (to_) to_->note_move(stage(MoveStage::Way::arrives));
  }
  static void note_end() {
    for (Executor* const executor : executors_in_use()) executor->note_move({});
  }
  void check_cancelled() const {
    if ((cancelled_ || is_exiting()) && !is_switched_) throw Refused{"cancelled"};
  }
  // Whether to go on, while something takes long: telling finds out whether whoever asked is still there.
  void look() {
    tell_now_and_then();
    check_cancelled();
  }

  void note(const memory::Copied& more) {
    Phase& phase = report_.phases.back();
    phase.copied += more;
    progress_.done += more.read;
    const auto now = Clock::now();
    if (is_stopped_ && !is_switched_ && order_.max_stop && now - stop_start_ > *order_.max_stop)
      throw Refused{"copying what had changed took longer than the stop allowed"};
    look();
    if (order_.bytes_per_second == 0 || (is_stopped_ && !order_.paces_stop)) return;
    const auto due =
        phase.start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>{
                          static_cast<double>(phase.copied.sent) / static_cast<double>(order_.bytes_per_second)});
    while (Clock::now() < due) {  // in small steps: whoever asked may go away
      std::this_thread::sleep_until(std::min(due, Clock::now() + kTell));
      look();
    }
  }
  void tell_now_and_then() {
    const auto now = Clock::now();
    if (now - last_told_ < kTell) return;
    last_told_ = now;
    progress_.bytes_per_second =
        static_cast<double>(progress_.done) / std::chrono::duration<double>{now - report_.phases.back().start}.count();
    on_progress_(progress_);
    note_move();
  }

  memory::Copied copy(Kept& kept, Transplant::Stage stage) {
    progress_.all = transplant_->bytes_at_stake(kept.all);
    const auto start = Clock::now();
    const auto copied = transplant_->copy(kept.all, stage, [this](const auto& more) { note(more); });
    const double seconds = std::chrono::duration<double>{Clock::now() - start}.count();
    if (copied.read > kSmall && seconds > 0) rate_ = static_cast<double>(copied.read) / seconds;
    return copied;
  }

  // Rounds, for as long as each leaves clearly less than the one before.
  void copy_while_running(Kept& kept) {
    std::uint64_t before = ~std::uint64_t{0};
    for (int round = 0; round < order_.rounds; ++round) {
      begin(round == 0 ? "first copy" : "copy again");
      const auto copied = copy(kept, Transplant::Stage::running);
      report_.copied_running += copied.sent;
      const std::uint64_t changed = copied.sent + copied.zero;
      // What was touched during one round is what the stop will have to look at.
      if (round > 0 && rate_ > 0)
        predicted_ =
            std::chrono::microseconds{static_cast<std::int64_t>(1e6 * static_cast<double>(copied.read) / rate_)};
      kept = Kept{take_inventory()};
      transplant_->follow(kept.all, Transplant::Stage::running);
      const bool enough =
          round > 0 && (changed <= kSmall || static_cast<double>(changed) > kGain * static_cast<double>(before));
      if (round > 0) before = changed;
      if (copied.read == 0 || enough) break;
    }
    if (order_.max_stop && order_.rounds > 0 && predicted_ > *order_.max_stop) {
      throw Refused{
          fmt::format("the stop would take about {} ms, more than the {} ms allowed: the program changes its "
                      "memory as fast as it is copied",
                      predicted_.count() / 1000, order_.max_stop->count())};
    }
  }

  // Only an earlier move makes such builds, and it lasts until the source has no others: none are added meanwhile.
  void wait_for_builds(Kept& kept) {
    if (!BuildAgain::is_any()) return;
    begin("builds");
    while (BuildAgain::is_any()) {
      std::this_thread::sleep_for(1ms);
      look();
    }
    kept = Kept{take_inventory()};
  }

  // What the device was given before the move began, it must finish; results come meanwhile.
  void wait_for_backlog() {
    if (slicer_->is_regular()) return;
    begin("backlog");
    while (!slicer_->is_regular()) {
      std::this_thread::sleep_for(1ms);
      look();
    }
  }

  // Builds take long, so what the program has built is there before the stop. What it builds meanwhile it builds again
  // there.
  void catch_up(Kept& kept) {
    begin("catch up");
    held_builds_.emplace();
    const std::uint64_t before = transplant_->builds();
    kept = Kept{take_inventory()};
    transplant_->follow(kept.all, Transplant::Stage::running);
    if (order_.rounds > 0 && transplant_->builds() != before)  // that took its time
      report_.copied_running += copy(kept, Transplant::Stage::running).sent;
  }

  // Memory objects go back to what a checkpoint says they held.
  Report restore() {
    begin("read");
    std::error_code unknown;
    if (const auto size = std::filesystem::file_size(order_.file, unknown); !unknown) progress_.all = size;
    const Checkpoint checkpoint = read_checkpoint(order_.file, [this](const auto& more) { note(more); });
    begin("hold");
    is_stopped_ = true;
    stop_start_ = Clock::now();
    HoldBack::Everything everything{HoldBack::instance()};
    drain(everything);
    begin("write back");
    {
      const Gate::Closed closed{g_gate};
      const Inventory all = Inventory::take();
      check_fits(checkpoint, all);
      report_.plan.destination = whereabouts().is_suspended ? "host memory" : whereabouts().to;
      report_.plan.bytes = progress_.all = all.bytes();
      report_.plan.objects = all.size();
      is_switched_ = true;  // half of it would be neither the one nor the other
      put_back(checkpoint, all, [this](const auto& more) {
        note(more);
        report_.copied_stopped += more.sent;
      });
    }
    report_.stop = micros(Clock::now() - stop_start_);
    report_.phases.back().end = Clock::now();
    return std::move(report_);
  }

  // New commands are kept back from here on; waits for those that the device has.
  void drain(HoldBack::Everything& everything) {
    const auto limit = order_.max_stop ? std::chrono::duration_cast<Clock::duration>(*order_.max_stop) : kDrain;
    if (!everything.drain(stop_start_ + limit, [this] { look(); }))
      throw Refused{"the device doesn't finish what it was given in the time allowed"};
    report_.drain = micros(Clock::now() - stop_start_);
  }

  void stop(Kept& kept) {
    begin("hold");
    const std::uint64_t built_before = transplant_->builds();
    is_stopped_ = true;
    const auto start = Clock::now();
    stop_start_ = start;
    // For a suspended session; what one has that was suspended until now is let go at the end.
    std::unique_ptr<HoldBack::Everything> suspension;
    auto everything = std::make_unique<HoldBack::Everything>(HoldBack::instance());
    slicer_.reset();
    drain(*everything);
    begin("last copy");
    kept = Kept{take_inventory()};
    transplant_->follow(kept.all, Transplant::Stage::running);
    report_.copied_stopped += copy(kept, Transplant::Stage::stopped).sent;
    if (shelf_) shelf_->flush();  // which may take long, so calls can still be made
    begin("switch");
    if (order_.kind == Order::Kind::suspend) suspension = std::make_unique<HoldBack::Everything>(HoldBack::instance());
    {
      const Gate::Closed closed{g_gate};
      kept = Kept{Inventory::take()};
      transplant_->follow(kept.all, Transplant::Stage::stopped);
      report_.copied_stopped += copy(kept, Transplant::Stage::stopped).sent;
      if (order_.kind == Order::Kind::checkpoint) return finish_stop(start, built_before);
      sources_ = transplant_->take_over(kept.all);
      executors_in_use().push_back(to_.get());
      std::erase_if(executors_in_use(), [&](Executor* executor) { return sources_.contains(executor); });
      is_switched_ = true;
      for (Executor* const source : sources_) source->session_left();
      std::swap(suspension, g_suspended);
      if (order_.kind == Order::Kind::suspend) {
        Whereabouts now = whereabouts();
        now.is_suspended = true;
        set_whereabouts(std::move(now));
      } else {
        set_whereabouts({to_->address(), {}, false});
      }
    }
    finish_stop(start, built_before);
    begin("release");
    everything.reset();  // what was held back follows
    suspension.reset();
    left_ = std::move(kept);
  }
  void finish_stop(Clock::time_point start, std::uint64_t built_before) {
    report_.built_stopped = transplant_->builds() - built_before;
    report_.stop = micros(Clock::now() - start);
    is_stopped_ = false;
  }

  // The source gives everything back, once nobody is in one of its functions any more.
  void release_source() {
    for (Executor* const source : sources_) {
      while (source->pins.load(std::memory_order_acquire) != 0) std::this_thread::sleep_for(1ms);
    }
    transplant_->leave_sources(left_.all);
    left_ = Kept{};
    const auto starting = starting_executors();
    for (Executor* const source : sources_) source->leave();
    if (order_.unload) {
      begin("unload");
      std::vector<Executor*> unused{starting.begin(), starting.end()};
      unused.insert(unused.end(), sources_.begin(), sources_.end());
      report_.staying = unload_drivers(unused);
    }
    for (Executor* const source : sources_) {
      // The first ones are known by their platforms. Others go behind their own callbacks, which may be posted already.
      if (std::find(starting.begin(), starting.end(), source) == starting.end())
        callbacks::post([source] { delete source; });
    }
    // Objects of a CPU were on the heap, which would keep it.
    if (order_.kind == Order::Kind::suspend) callbacks::post([] { malloc_trim(0); });
    (void)to_.release();  // the session's now
  }

  const Order& order_;
  const std::function<void(const Progress&)>& on_progress_;
  const std::atomic<bool>& cancelled_;
  std::unique_ptr<Executor> to_;
  std::optional<Transplant> transplant_;
  Report report_;
  Progress progress_;
  Clock::time_point last_told_;
  Clock::time_point stop_start_;
  double rate_ = 0;  // bytes per second that were read, compared and sent
  std::chrono::microseconds predicted_{0};
  bool is_stopped_ = false;
  bool is_switched_ = false;
  Shelf* shelf_ = nullptr;  // what to_ is, if nowhere
  std::unique_ptr<Slicer> slicer_;
  std::optional<HeldBuilds> held_builds_;
  std::set<Executor*> sources_;
  Kept left_;
};

}  // namespace

Whereabouts whereabouts() {
  const std::lock_guard lock{g_whereabouts_mutex};
  if (g_whereabouts.to.empty()) g_whereabouts.to = starting_executors().front()->address();
  return g_whereabouts;
}

Report move_session(const Order& order, const std::function<void(const Progress&)>& on_progress,
                    const std::atomic<bool>& cancelled) {
  return Mover{order, on_progress, cancelled}.run();
}

}  // namespace grus::move
