#include "memory/copy.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/log.hpp"
#include "base/sanitizer.hpp"

namespace grus::memory {
namespace {

// Pages that are to be treated alike, next to each other.
struct Run {
  enum class Kind : std::uint8_t { unchanged, changed, zero };
  Kind kind = Kind::unchanged;
  std::size_t offset = 0;  // within the chunk
  std::size_t there = 0;   // within the object
  std::size_t size = 0;
};

void add_page(std::vector<Run>& runs, const Run& page) {
  const bool goes_on =
      !runs.empty() && runs.back().kind == page.kind && runs.back().there + runs.back().size == page.there;
  if (!goes_on) runs.push_back({page.kind, page.offset, page.there, 0});
  runs.back().size += page.size;
}

std::vector<Run> runs_in(std::span<const std::byte> chunk, std::size_t first_page, SentPages& pages, Round round,
                         Copied& copied) {
  using Found = SentPages::Found;
  std::vector<Run> runs;
  for (std::size_t offset = 0; offset < chunk.size(); offset += kPage) {
    const auto page = chunk.subspan(offset, std::min(kPage, chunk.size() - offset));
    auto kind = Run::Kind::unchanged;
    const Found found = pages.note(first_page + offset / kPage, page, round);
    if (found != Found::unchanged) kind = is_zero(page) ? Run::Kind::zero : Run::Kind::changed;
    if (found == Found::never_sent) copied.never_sent += page.size();
    if (found == Found::other_sample) copied.sampled += page.size();
    add_page(runs, {kind, offset, first_page * kPage + offset, page.size()});
  }
  return runs;
}

WritePages writes_at(const Route& route) {
  return [&to = route.to, queue = route.queue](ObjectId buffer, Range range, const std::byte* from) {
    if (from) {
      check(to.submit(command::Write{{buffer}, range, from}, {queue, {}, {}, Blocking::yes}), "writing memory");
    } else {
      check(to.submit(zeroes(buffer, range), {.queue = queue, .waits = {}, .event = {}}), "clearing memory");
    }
  };
}

void hand_over(Conveyor& conveyor, const WritePages& write, ObjectId buffer, const std::byte* chunk,
               std::vector<Run> runs, Copied& copied) {
  std::erase_if(runs, [](const Run& run) { return run.kind == Run::Kind::unchanged; });
  for (const Run& run : runs) (run.kind == Run::Kind::zero ? copied.zero : copied.sent) += run.size;
  if (runs.empty()) return;
  conveyor.hand_over({[write, buffer, chunk, runs = std::move(runs)] {
    for (const Run& run : runs)
      write(buffer, {run.there, run.size}, run.kind == Run::Kind::zero ? nullptr : chunk + run.offset);
  }});
}

}  // namespace

void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS) throw std::runtime_error{fmt::format("{} failed: OpenCL error {}", what, code)};
}

command::Fill zeroes(ObjectId memory, Range range) {
  command::Fill fill{{memory}, range, {}};
  fill.pattern.bytes.fill(std::byte{0});
  fill.pattern.size = range.size % sizeof(cl_uint) == 0 ? sizeof(cl_uint) : 1;
  return fill;
}

void copy_part(const Part& part, Conveyor& conveyor, SentPages* pages, Round round, const WritePages& write,
               const OnCopied& on_copied) {
  const Placement placement{.queue = part.queue, .waits = {}, .event = {}, .blocking = Blocking::yes};
  const std::size_t end = part.range.offset + part.range.size;
  for (std::size_t start = part.range.offset; start < end; start += kChunk) {
    const std::span<std::byte> chunk{conveyor.take(), std::min(kChunk, end - start)};
    if (part.contents) {
      sanitizer::copy_what_is_written(chunk.data(), part.contents + start, chunk.size());
    } else {
      check(part.from.submit(command::Read{{part.buffer}, {start, chunk.size()}, chunk.data()}, placement),
            "reading memory");
    }
    Copied copied{.read = chunk.size()};
    std::vector<Run> runs{{Run::Kind::changed, 0, start, chunk.size()}};
    if (pages) runs = runs_in(chunk, start / kPage, *pages, round, copied);
    hand_over(conveyor, write, part.buffer, chunk.data(), std::move(runs), copied);
    on_copied(copied);
  }
}

void copy_buffer(const Route& route, ObjectId buffer, Range range, const std::byte* contents, SentPages& pages,
                 Round round, const OnCopied& on_copied) {
  copy_part({route.from, route.queue, buffer, range, contents}, route.conveyor, &pages, round, writes_at(route),
            on_copied);
}

void copy_written(const Route& route, ObjectId buffer, std::span<const std::byte> contents,
                  std::span<const Range> written, const OnCopied& on_copied) {
  std::vector<Run> runs;
  std::byte* chunk = nullptr;
  std::size_t used = 0;  // of the chunk
  const auto send = [&] {
    Copied copied{.read = std::exchange(used, 0)};
    hand_over(route.conveyor, writes_at(route), buffer, std::exchange(chunk, nullptr), std::exchange(runs, {}), copied);
    on_copied(copied);
  };
  for (const Range& part : written) {
    for (std::size_t done = 0; done < part.size;) {
      if (!chunk) chunk = route.conveyor.take();
      std::byte* const here = chunk + used;
      const std::size_t size = std::min({kPage, kChunk - used, part.size - done});
      sanitizer::copy_what_is_written(here, contents.data() + part.offset + done, size);
      const auto kind = is_zero({here, size}) ? Run::Kind::zero : Run::Kind::changed;
      add_page(runs, {kind, used, part.offset + done, size});
      used += size;
      done += size;
      if (used == kChunk) send();
    }
  }
  if (used != 0) send();
}

void copy_contents(const Route& route, ObjectId buffer, std::span<const std::byte> contents,
                   const OnCopied& on_copied) {
  constexpr std::size_t kPart = 16 * kChunk;
  for (std::size_t start = 0; start < contents.size(); start += kPart) {
    const Range range{start, std::min(kPart, contents.size() - start)};
    const auto write = [&to = route.to, queue = route.queue, buffer, range, from = contents.data() + start] {
      check(to.submit(command::Write{{buffer}, range, from}, {queue, {}, {}, Blocking::yes}), "writing memory");
    };
    if (route.conveyor.has_room()) {  // two threads write
      route.conveyor.hand_over({write});
    } else {
      write();
    }
    on_copied({.read = range.size, .sent = range.size});
  }
}

std::size_t packed_size(const ImageFacts& facts) {
  const Triple extent = facts.extent();
  return facts.element_size * extent[0] * extent[1] * extent[2];
}

void copy_image(const Route& route, ObjectId image, const ImageFacts& facts, SentPages& pages, Round round,
                const OnCopied& on_copied) {
  const Placement placement{.queue = route.queue, .waits = {}, .event = {}, .blocking = Blocking::yes};
  const command::ImageRegion whole{{0, 0, 0}, facts.extent()};
  std::vector<std::byte> staging(packed_size(facts));
  check(route.from.submit(command::ReadImage{{image}, whole, 0, 0, staging.data()}, placement), "reading an image");
  Copied copied{.read = staging.size()};
  const auto runs = runs_in(staging, 0, pages, round, copied);
  const bool changed =
      std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.kind != Run::Kind::unchanged; });
  if (changed)
    check(route.to.submit(command::WriteImage{{image}, whole, 0, 0, staging.data()}, placement), "writing an image");
  copied.sent = changed ? staging.size() : 0;
  on_copied(copied);
}

}  // namespace grus::memory
