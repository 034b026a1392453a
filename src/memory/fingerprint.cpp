#include "memory/fingerprint.hpp"

#include <algorithm>
#include <cstring>

#include "memory/xxh3_avx2.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace grus::memory {
namespace {

template <typename T, std::size_t kCount>
std::optional<T> named(std::string_view name, const std::array<std::pair<std::string_view, T>, kCount>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == name; });
  if (found == all.end()) return std::nullopt;
  return found->second;
}

using Block = std::uint64_t __attribute__((vector_size(32)));

// Four at a time, so that each needn't wait for the one before.
[[gnu::always_inline]] inline Fingerprint xor_of_blocks(std::span<const std::byte> page) {
  std::array<Block, 4> sums{};
  std::size_t done = 0;
  for (; done + sizeof sums <= page.size(); done += sizeof sums) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      Block next;
      std::memcpy(&next, page.data() + done + i * sizeof next, sizeof next);
      sums[i] ^= next;
    }
  }
  for (; done < page.size(); done += sizeof(Block)) {
    Block next{};  // what a last page lacks counts as zeroes
    std::memcpy(&next, page.data() + done, std::min(sizeof next, page.size() - done));
    sums[0] ^= next;
  }
  const Block sum = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  return {sum[0], sum[1], sum[2], sum[3]};
}

#ifdef __x86_64__
[[gnu::target("avx2")]] Fingerprint xor_with_avx2(std::span<const std::byte> page) { return xor_of_blocks(page); }

bool has_avx2() {
  static const bool s_has = __builtin_cpu_supports("avx2");
  return s_has;
}
#endif

Fingerprint xor256(std::span<const std::byte> page) {
#ifdef __x86_64__
  if (has_avx2()) return xor_with_avx2(page);
#endif
  return xor_of_blocks(page);
}

Fingerprint xxh3(std::span<const std::byte> page) {
#ifdef __x86_64__
  if (has_avx2()) {
    Fingerprint fingerprint{};
    xxh3_with_avx2(page.data(), page.size(), fingerprint.data());
    return fingerprint;
  }
#endif
  const XXH128_hash_t hash = XXH3_128bits(page.data(), page.size());
  return {hash.low64, hash.high64, 0, 0};
}

}  // namespace

std::optional<Kind> kind_named(std::string_view name) {
  return named<Kind, 5>(name, {{{"fitting", Kind::fitting},
                                {"device", Kind::device},
                                {"xxh3", Kind::xxh3},
                                {"xor256", Kind::xor256},
                                {"system", Kind::system}}});
}

std::optional<Sample::At> place_named(std::string_view name) {
  using At = Sample::At;
  return named<At, 3>(name, {{{"head", At::head}, {"tail", At::tail}, {"uniform", At::uniform}}});
}

std::uint32_t sample_of(std::span<const std::byte> page, Sample sample) {
  std::uint32_t all = 0;
  const std::size_t bytes = std::min(sample.bytes, page.size());
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::size_t place = sample.at == Sample::At::head   ? i
                              : sample.at == Sample::At::tail ? page.size() - 1 - i
                                                              : (2 * i + 1) * page.size() / (2 * bytes);
    all = all << 8 | std::to_integer<std::uint32_t>(page[place]);
  }
  return all;
}

Fingerprint fingerprint(std::span<const std::byte> page, Kind kind) {
  return kind == Kind::xor256 ? xor256(page) : xxh3(page);
}

bool is_zero(std::span<const std::byte> page) {
  return page.empty() || (page[0] == std::byte{0} && std::memcmp(page.data(), page.data() + 1, page.size() - 1) == 0);
}

SentPages::Found SentPages::note(std::size_t number, std::span<const std::byte> page, Round round) {
  Sent& sent = pages_[number];
  const std::uint32_t sample = sample_of(page, how_.sample);
  const Found quick = !sent.is_known          ? Found::never_sent
                      : sample != sent.sample ? Found::other_sample
                                              : Found::unchanged;
  if (round == Round::last && quick != Found::unchanged) {
    sent.is_known = false;
    return quick;
  }
  const Fingerprint now = fingerprint(page, how_.kind);
  if (quick == Found::unchanged && sent.fingerprint == now) return Found::unchanged;
  sent = {now, sample, true};
  return quick == Found::unchanged ? Found::other_fingerprint : quick;
}

void SentPages::forget(Range range) {
  const std::size_t end = (range.offset + range.size + kPage - 1) / kPage;
  for (std::size_t number = range.offset / kPage; number < end; ++number) pages_[number].is_known = false;
}

}  // namespace grus::memory
