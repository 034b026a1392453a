#include "server/offer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.hpp"
#include "base/reserved_array.hpp"

namespace grus::server {

Offer make_offer(Executor& executor, std::span<const std::string> texts) {
  Offer offer;
  std::string hidden;
  const auto platforms = executor.platforms();
  for (std::uint32_t platform = 0; platform < platforms.size(); ++platform) {
    OfferedPlatform offered{platform, {}};
    const auto count = executor.device_count(platform);
    for (cl_uint device = 0; count && device < *count; ++device) {
      const ObjectId id{1, kMaxSlots - 1};  // a name for the time being
      executor.name_device(platform, device, id);
      const auto fact = executor.device_info(id, CL_DEVICE_NAME);
      const std::string name = fact ? text_from_bytes(*fact) : "";
      const auto is_in_a_name = [&](const std::string& text) {
        return name.find(text) != std::string::npos || platforms[platform].name.find(text) != std::string::npos;
      };
      if (!texts.empty() && std::none_of(texts.begin(), texts.end(), is_in_a_name)) {
        hidden += fmt::format("{}{} ({})", hidden.empty() ? "" : ", ", name, platforms[platform].name);
        continue;
      }
      (void)executor.works_in_place(id);
      offered.devices.push_back(device);
    }
    if (!offered.devices.empty()) offer.push_back(std::move(offered));
  }
  if (offer.empty() && !hidden.empty())
    log::warn("serve", "no device has {} in its name; there are: {}", fmt::join(texts, " or "), hidden);
  return offer;
}

}  // namespace grus::server
