// Dirties pages of device memory in a pattern that is asked for. gMig's paper sorts the pages it meets in the stop into
// four classes: fresh ones, not there in the pre-copy; unchanged ones; changed ones whose sampled first byte tells; and
// changed ones whose sampled byte is the same, so that only their fingerprint tells. Each page here belongs to one
// class throughout, and each class is met whole once a second, whenever a move begins.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <thread>

#include "dirty.cl.hpp"
#include "frame/workload.hpp"

namespace {

using namespace workload;
using Clock = std::chrono::steady_clock;

constexpr size_t kPageWords = 1024;
constexpr size_t kEdgeWords = 16;  // of a page whose first and last bytes stay
constexpr size_t kGroup = 64;      // work items for a page
constexpr size_t kPagesPerMiB = 256;
constexpr size_t kChunkPages = 1 << 15;  // 128 MiB: no device refuses a buffer of that size

struct Pattern {
  // Shares of all pages; the remaining ones change from their first byte on.
  double fresh;
  double unchanged;
  double head_kept;
  double dirtied;   // pages written in a second, as a share of all
  double locality;  // share of a step's pages that the step before wrote too
};

// Tropics is the program of gMig's figure 9. Of the classes alone, "fresh" is all in buffers that are made anew. "any"
// lets each page change, as many of them with their first bytes kept as in Tropics.
const std::map<std::string, Pattern> kPresets{
    {"tropics", {.fresh = 0.189, .unchanged = 0.384, .head_kept = 0.048, .dirtied = 0.854, .locality = 0.5}},
    {"fresh", {.fresh = 1, .unchanged = 0, .head_kept = 0, .dirtied = 0, .locality = 0}},
    {"unchanged", {.fresh = 0, .unchanged = 1, .head_kept = 0, .dirtied = 0, .locality = 0}},
    {"head-changed", {.fresh = 0, .unchanged = 0, .head_kept = 0, .dirtied = 2, .locality = 0.5}},
    {"head-kept", {.fresh = 0, .unchanged = 0, .head_kept = 1, .dirtied = 2, .locality = 0.5}},
    {"any", {.fresh = 0, .unchanged = 0, .head_kept = 0.113, .dirtied = 0.2, .locality = 0.75}},
};

struct Options {
  std::string preset = "tropics";
  std::optional<double> dirtied;
  std::optional<double> locality;
  unsigned steps_per_second = 20;
  bool hurry = false;
};

Pattern pattern_of(const Options& options) {
  Pattern pattern = kPresets.at(options.preset);
  pattern.dirtied = options.dirtied.value_or(pattern.dirtied);
  pattern.locality = options.locality.value_or(pattern.locality);
  return pattern;
}

cl_uint value_of(size_t page, size_t word, unsigned step) {
  auto value = static_cast<cl_uint>(page * kPageWords + word);
  value = (value ^ (value >> 16)) * 0x7feb352d;
  value = (value ^ (value >> 15)) * 0x846ca68b;
  return (value ^ (value >> 16)) + step * 0x9e3779b9;
}

// Which pages each step writes.
class Choice {
 public:
  // May be empty: then nothing is ever written.
  Choice(std::vector<cl_uint> candidates, double pages_per_step, double locality)
      : candidates_{std::move(candidates)}, pages_per_step_{pages_per_step}, locality_{locality} {
    cl_uint last = 0;
    for (const cl_uint page : candidates_) last = std::max(last, page);
    step_of_.resize(candidates_.empty() ? 0 : last + 1);
  }

  // In the order of their numbers. Steps count from 1.
  const std::vector<cl_uint>& at(unsigned step) {
    const auto whole = static_cast<size_t>(std::llround(pages_per_step_ * step)) - asked_;
    asked_ += whole;
    const size_t count = std::min(whole, candidates_.size());
    const size_t again =
        std::min(static_cast<size_t>(std::llround(locality_ * static_cast<double>(count))), chosen_.size());
    for (size_t i = 0; i < again; ++i) {
      std::swap(chosen_[i], chosen_[i + random_.below(static_cast<cl_uint>(chosen_.size() - i))]);
      step_of_[chosen_[i]] = step;
    }
    chosen_.resize(again);
    add_others(step, count);
    std::sort(chosen_.begin(), chosen_.end());
    repeated_ += again;
    return chosen_;
  }
  size_t repeated() const { return repeated_; }

 private:
  // In turn, so that none is left out; pages of the step before only when all others are taken.
  void add_others(unsigned step, size_t count) {
    for (size_t passed = 0; chosen_.size() < count; ++passed) {
      const cl_uint page = candidates_[next_];
      next_ = (next_ + 1) % candidates_.size();
      const unsigned last = step_of_[page];
      if (last == step || (last + 1 == step && last != 0 && passed < candidates_.size())) continue;
      step_of_[page] = step;
      chosen_.push_back(page);
    }
  }

  std::vector<cl_uint> candidates_;
  double pages_per_step_;
  double locality_;
  Random random_{2};
  std::vector<cl_uint> chosen_;
  std::vector<unsigned> step_of_;  // that chose the page last
  size_t next_ = 0;
  size_t asked_ = 0;
  size_t repeated_ = 0;
};

class Dirty : public Workload {
 public:
  Dirty(size_t size, const Options& options) : options_{options}, pattern_{pattern_of(options)} {
    const size_t pages = size * kPagesPerMiB;
    const auto share = [&](double part) {
      return static_cast<size_t>(std::llround(part * static_cast<double>(pages)));
    };
    replaced_.resize(pattern_.fresh > 0 ? options_.steps_per_second : 0);
    if (!replaced_.empty()) pages_in_replaced_ = std::max<size_t>(1, share(pattern_.fresh) / replaced_.size());
    const size_t in_replaced = pages_in_replaced_ * replaced_.size();
    lasting_ = in_replaced < pages ? pages - in_replaced : 0;

    // Classes are spread over the whole memory.
    std::vector<cl_uint> order(lasting_);
    std::iota(order.begin(), order.end(), 0);
    Random random{1};
    for (size_t i = lasting_; i > 1; --i) std::swap(order[i - 1], order[random.below(static_cast<cl_uint>(i))]);
    const size_t unchanged = std::min(share(pattern_.unchanged), lasting_);
    keeps_edges_.resize(lasting_);
    for (size_t i = unchanged; i < std::min(lasting_, unchanged + share(pattern_.head_kept)); ++i)
      keeps_edges_[order[i]] = 1;
    order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(unchanged));
    written_at_.resize(lasting_);
    candidates_ = order.size();
    choice_.emplace(std::move(order), pattern_.dirtied * static_cast<double>(pages) / options_.steps_per_second,
                    pattern_.locality);
  }

  void prepare(Frame& frame) override {
    frame.build(kKernels);
    write_all_ = frame.kernel("write_all");
    write_chosen_ = frame.kernel("write_chosen");
    chosen_on_device_ = frame.buffer_of<cl_uint>(std::max<size_t>(1, candidates_), CL_MEM_READ_ONLY);
    for (size_t first = 0; first < lasting_; first += kChunkPages) {
      const size_t pages = std::min(kChunkPages, lasting_ - first);
      chunks_.push_back({first, pages, make(frame, first, pages, 0), {}});
    }
    for (size_t place = 0; place < replaced_.size(); ++place) replaced_[place].buffer = make_anew(frame, place, 0);
    frame.finish();
  }

  void iterate(Frame& frame) override {
    if (step_ == 0) start_ = Clock::now();
    ++step_;
    dirty(frame);
    if (!replaced_.empty()) {
      const size_t place = step_ % replaced_.size();
      frame.release(replaced_[place].buffer);
      replaced_[place].buffer = make_anew(frame, place, step_);
      replaced_[place].step = step_;
    }
    check(clFlush(frame.queue()), "clFlush");
    if (!options_.hurry) std::this_thread::sleep_until(start_ + step_ * interval());
  }

  void collect(Frame& frame) override {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const auto per_second = [&](size_t count) { return static_cast<double>(count) / seconds; };
    frame.report("pages", static_cast<double>(lasting_ + pages_in_replaced_ * replaced_.size()));
    frame.report("pages_that_may_change", static_cast<double>(candidates_));
    frame.report("pages_dirtied_per_second", per_second(dirtied_));
    frame.report("fresh_pages_per_second", per_second(pages_in_replaced_ * step_));
    frame.report("dirtied_again",
                 dirtied_ == 0 ? 0.0 : static_cast<double>(choice_->repeated()) / static_cast<double>(dirtied_));
    for (Chunk& chunk : chunks_) {
      chunk.words.resize(chunk.pages * kPageWords);
      frame.fetch(chunk.buffer, chunk.words);
    }
    for (Replaced& place : replaced_) {
      place.words.resize(pages_in_replaced_ * kPageWords);
      frame.fetch(place.buffer, place.words);
    }
  }

  void verify() const override {
    for (const Chunk& chunk : chunks_) {
      for (size_t page = 0; page < chunk.pages; ++page) {
        const size_t number = chunk.first + page;
        expect_page(&chunk.words[page * kPageWords], number, written_at_[number],
                    keeps_edges_[number] != 0 ? 0 : written_at_[number]);
      }
    }
    for (size_t place = 0; place < replaced_.size(); ++place) {
      const unsigned step = replaced_[place].step;
      for (size_t page = 0; page < pages_in_replaced_; ++page)
        expect_page(&replaced_[place].words[page * kPageWords], first_of(place) + page, step, step);
    }
  }

  void add_to(Checksum& checksum) const override {
    for (const Chunk& chunk : chunks_) checksum.add(chunk.words);
    for (const Replaced& place : replaced_) checksum.add(place.words);
  }

 private:
  struct Chunk {
    size_t first;
    size_t pages;
    Buffer buffer;
    std::vector<cl_uint> words;  // what the device held in the end
  };
  // Pages in a buffer that is made again each second.
  struct Replaced {
    Buffer buffer;
    unsigned step = 0;  // that made it
    std::vector<cl_uint> words;
  };

  Clock::duration interval() const {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1.0 / options_.steps_per_second));
  }
  size_t first_of(size_t place) const { return lasting_ + place * pages_in_replaced_; }

  Buffer make(Frame& frame, size_t first, size_t pages, unsigned step) const {
    auto buffer = frame.buffer_of<cl_uint>(pages * kPageWords);
    frame.launch(write_all_, {pages * kGroup}, {kGroup}, buffer, static_cast<cl_uint>(first), cl_uint{step});
    return buffer;
  }
  Buffer make_anew(Frame& frame, size_t place, unsigned step) const {
    return make(frame, first_of(place), pages_in_replaced_, step);
  }

  // Each buffer is an argument of a launch in each step, written or not: only its bytes tell what changed.
  void dirty(Frame& frame) {
    const auto& pages = choice_->at(step_);
    dirtied_ += pages.size();
    std::vector<cl_uint> entries;
    entries.reserve(pages.size());
    for (const cl_uint page : pages) {
      entries.push_back(page << 1 | keeps_edges_[page]);
      written_at_[page] = step_;
    }
    if (!entries.empty()) frame.send(chosen_on_device_, entries);
    size_t from = 0;
    for (const Chunk& chunk : chunks_) {
      const auto end = std::lower_bound(pages.begin(), pages.end(), static_cast<cl_uint>(chunk.first + chunk.pages));
      const size_t count = static_cast<size_t>(end - pages.begin()) - from;
      frame.launch(write_chosen_, {std::max<size_t>(1, count) * kGroup}, {kGroup}, chunk.buffer,
                   static_cast<cl_uint>(chunk.first), chosen_on_device_, static_cast<cl_uint>(from),
                   static_cast<cl_uint>(count), cl_uint{step_});
      from += count;
    }
  }

  static void expect_page(const cl_uint* words, size_t page, unsigned step, unsigned edges_step) {
    for (size_t word = 0; word < kPageWords; ++word) {
      const bool edge = word < kEdgeWords || word >= kPageWords - kEdgeWords;
      if (words[word] != value_of(page, word, edge ? edges_step : step))
        throw Wrong("page " + std::to_string(page) + ", written in step " + std::to_string(step) + ": word " +
                    std::to_string(word) + " is " + std::to_string(words[word]));
    }
  }

  Options options_;
  Pattern pattern_;
  size_t lasting_ = 0;  // pages in buffers that live as long as the program
  size_t pages_in_replaced_ = 0;
  size_t candidates_ = 0;
  std::vector<unsigned char> keeps_edges_;  // by page
  std::vector<unsigned> written_at_;        // by page: the step
  std::optional<Choice> choice_;
  std::vector<Chunk> chunks_;
  std::vector<Replaced> replaced_;
  Kernel write_all_;
  Kernel write_chosen_;
  Buffer chosen_on_device_;
  unsigned step_ = 0;
  size_t dirtied_ = 0;
  Clock::time_point start_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  return run_workload(
      argc, argv,
      {.name = "dirty",
       .what = "Dirties pages of device memory in a chosen pattern",
       .size = 256,
       .size_is = "working set in MiB",
       .iterations = 60,
       .quick_size = 16},
      [&](size_t size) { return std::make_unique<Dirty>(size, options); },
      [&](CLI::App& app) {
        app.add_option("--preset", options.preset,
                       "which pages change: tropics (gMig's mix of four classes), any, or one class: fresh, unchanged, "
                       "head-changed, head-kept; tropics unless told")
            ->check(CLI::IsMember(kPresets));
        app.add_option("--dirtied", options.dirtied,
                       "pages written in a second as a share of all; the preset's unless told")
            ->check(CLI::NonNegativeNumber);
        app.add_option("--locality", options.locality,
                       "share of a step's pages that the step before wrote too; the preset's unless told")
            ->check(CLI::Range(0.0, 1.0));
        app.add_option("--steps-per-second", options.steps_per_second, "20 unless told")->check(CLI::Range(1, 10000));
        app.add_flag("--hurry", options.hurry, "don't wait between steps");
      });
}
