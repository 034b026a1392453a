// Pages, and what tells whether one has changed since it was sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "objects/dirty.hpp"

namespace grus::memory {

inline constexpr std::size_t kPage = 4096;

// Who fingerprints pages, and how.
enum class Kind : std::uint8_t {
  fitting,  // the device if it has memory of its own, else the host with XXH3
  device,   // 128 bits of Grus's own, by a kernel
  xxh3,     // 128 bits. Two different pages have the same with a probability of 2^-128; a move of 1 TiB in 100 rounds
            // compares 2^35 pages, so one in 2^93 such moves would miss a change.
  xor256,   // gMig's: the exclusive or of a page's blocks of 32 bytes. Blocks that are swapped go unseen.
  system,   // none, where the system's kernel tells which pages were written; else XXH3
};
std::optional<Kind> kind_named(std::string_view name);

// Bytes that the host looks at before it fingerprints a page, as gMig does: if they differ, the page has changed.
struct Sample {
  enum class At : std::uint8_t { head, tail, uniform };
  std::size_t bytes = 0;  // 4 at most
  At at = At::head;
};
std::optional<Sample::At> place_named(std::string_view name);
std::uint32_t sample_of(std::span<const std::byte> page, Sample sample);

struct Comparison {
  Kind kind = Kind::fitting;
  Sample sample;
};

using Fingerprint = std::array<std::uint64_t, 4>;  // what isn't needed is 0
// By the host: with XXH3 whatever isn't xor256.
Fingerprint fingerprint(std::span<const std::byte> page, Kind kind);
bool is_zero(std::span<const std::byte> page);

// Whether pages will be compared again with what is sent now. Those sent in the last round need no fingerprint.
enum class Round : std::uint8_t { another_follows, last };

// What the destination has of one object: a fingerprint for every page that was sent.
class SentPages {
 public:
  SentPages(std::size_t size, Comparison how) : how_{how}, pages_((size + kPage - 1) / kPage) {}

  // From here on the page counts as sent. Should one whose samples differed in the last round be looked at once more,
  // it counts as never sent: nobody knows its fingerprint.
  enum class Found : std::uint8_t { unchanged, never_sent, other_sample, other_fingerprint };
  Found note(std::size_t number, std::span<const std::byte> page, Round round);
  void forget(Range range);  // from the beginning of a page on: it counts as never sent

 private:
  struct Sent {
    Fingerprint fingerprint{};
    std::uint32_t sample = 0;
    bool is_known = false;
  };
  const Comparison how_;
  std::vector<Sent> pages_;
};

}  // namespace grus::memory
