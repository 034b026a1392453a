// Pages and what tells them apart: 128 bits of XXH3. Two different pages have the same fingerprint with a probability
// of 2^-128; a move of 1 TiB in 100 rounds compares 2^35 pages, so one in 2^93 such moves would miss a change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace grus::memory {

inline constexpr std::size_t kPage = 4096;

struct Fingerprint {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Fingerprint&) const = default;
};

Fingerprint fingerprint(std::span<const std::byte> page);
bool is_zero(std::span<const std::byte> page);

// What the destination has of one object: a fingerprint for every page that was sent.
class SentPages {
 public:
  explicit SentPages(std::size_t size) : pages_((size + kPage - 1) / kPage) {}

  // Whether the page is new or has changed since it was sent. From here on it counts as sent.
  bool note(std::size_t page, const Fingerprint& now) {
    Sent& sent = pages_[page];
    if (sent.is_known && sent.fingerprint == now) return false;
    sent = {now, true};
    return true;
  }

 private:
  struct Sent {
    Fingerprint fingerprint;
    bool is_known = false;
  };
  std::vector<Sent> pages_;
};

}  // namespace grus::memory
