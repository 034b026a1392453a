#include "server/audit.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/log.hpp"

namespace grus::server {
namespace {

// 2026-03-01T12:34:56.789Z
std::string time_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", text, milliseconds);
}

}  // namespace

Audit::Audit(const std::string& file) : path_{file} {
  if (file.empty()) return;
  file_ = channel::Descriptor{open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR)};
  if (file_.get() < 0) throw std::runtime_error{fmt::format("audit file {}: {}", file, std::strerror(errno))};
}

void Audit::note(const char* event, const nlohmann::ordered_json& details) const {
  using json = nlohmann::ordered_json;
  json line = {{"time", time_text()}, {"event", event}};
  line.update(details);
  // Names come from programs and drivers, which needn't be careful about their encoding.
  const std::string text = line.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace) + "\n";
  if (path_.empty()) {
    log::info("audit", "{}", std::string_view{text}.substr(0, text.size() - 1));
  } else if (write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    log::warn("audit", "{}: {}; missing there: {}", path_, std::strerror(errno), text);
  }
}

}  // namespace grus::server
