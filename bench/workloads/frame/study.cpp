#include "frame/study.hpp"

#include <algorithm>

#include "frame/checksum.hpp"

namespace workload {

void Study::look(Frame& frame) {
  frame.finish();
  const auto& buffers = frame.buffers();
  pages_.resize(buffers.size());
  std::vector<unsigned char> bytes;
  std::uint64_t all = 0;
  std::uint64_t changed_now = 0;
  std::uint64_t again = 0;
  std::uint64_t before = 0;
  for (size_t index = 0; index < buffers.size(); ++index) {
    const auto [buffer, size] = buffers[index];
    if (buffer == nullptr) continue;
    bytes.resize(size);
    check(clEnqueueReadBuffer(frame.queue(), buffer, CL_TRUE, 0, size, bytes.data(), 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
    auto& pages = pages_[index];
    pages.resize((size + kPage - 1) / kPage);
    for (size_t page = 0; page < pages.size(); ++page) {
      Checksum checksum;
      checksum.add(bytes.data() + page * kPage, std::min(kPage, size - page * kPage));
      const bool changed = looks_ != 0 && checksum.value() != pages[page].fingerprint;
      before += pages[page].changed_last ? 1 : 0;
      again += pages[page].changed_last && changed ? 1 : 0;
      pages[page] = {checksum.value(), pages[page].changes + (changed ? 1 : 0), changed};
      changed_now += changed ? 1 : 0;
      ++all;
    }
  }
  if (looks_++ == 0) return;
  shares_.push_back(all == 0 ? 0.0 : static_cast<double>(changed_now) / static_cast<double>(all));
  dirtied_ += before;
  dirtied_again_ += again;
}

nlohmann::json Study::as_json() const {
  std::uint64_t all = 0;
  std::uint64_t ever = 0;
  for (const auto& pages : pages_) {
    all += pages.size();
    ever += static_cast<std::uint64_t>(
        std::count_if(pages.begin(), pages.end(), [](const Page& page) { return page.changes != 0; }));
  }
  const auto share = [](std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  return {{"pages", all},
          {"ever_dirtied", share(ever, all)},
          {"dirtied_in_interval", shares_},
          {"dirtied_again", share(dirtied_again_, dirtied_)}};
}

}  // namespace workload
