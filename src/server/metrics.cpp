#include "server/metrics.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "channel/address.hpp"

namespace grus::server {
namespace {

using json = nlohmann::ordered_json;

constexpr std::chrono::seconds kPatienceWithVisitors{5};
constexpr std::size_t kMostVisitors = 16;
constexpr std::size_t kLongestRequest = 8192;

struct Metric {
  const char* name;  // without grus_
  const char* type;
  const char* key;  // in the server's answer
  const char* help;
};

constexpr Metric kOfServer[] = {
    {"sessions_started_total", "counter", "sessions_started", "Sessions that began"},
    {"refusals_total", "counter", "refusals", "Clients that were refused"},
    {"greedy_sessions_total", "counter", "sessions_ended_for_greed", "Sessions that were ended for what they took"},
    {"swap_bytes", "gauge", "swap_bytes", "Host memory for what is moved out of devices"},
    {"swap_used_bytes", "gauge", "swap_used_bytes", "Of that, what is used"},
};
constexpr Metric kOfTenant[] = {
    {"tenant_sessions", "gauge", "sessions", "Sessions of a tenant"},
    {"tenant_weight", "gauge", "weight", "Its part of a device, beside those of others"},
    {"tenant_memory_bytes", "gauge", "memory_bytes", "Memory in its buffers and images"},
    {"tenant_quota_bytes", "gauge", "quota_bytes", "What it may have of that; 0 for as much as there is"},
    {"tenant_on_device_bytes", "gauge", "on_device_bytes", "What of it is in memory of devices' own"},
    {"tenant_swapped_out_bytes", "gauge", "swapped_out_bytes", "What of it was moved out to host memory"},
    {"tenant_moved_out_bytes_total", "counter", "moved_out_bytes", "What was moved out so far"},
    {"tenant_moved_in_bytes_total", "counter", "moved_in_bytes", "What was brought back so far"},
    {"tenant_commands_total", "counter", "commands", "Commands that it sent"},
    {"tenant_device_seconds_total", "counter", "device_seconds", "Time for which it had a device"},
    {"tenant_waited_seconds_total", "counter", "waited_seconds", "Time for which it waited for one"},
    {"tenant_longest_wait_seconds", "gauge", "longest_wait_seconds", "The longest of those waits"},
};
constexpr Metric kOfDevice[] = {
    {"device_memory_bytes", "gauge", "memory_bytes", "Memory of a device that sessions may use"},
    {"device_memory_free_bytes", "gauge", "free_bytes", "Of that, what no session has"},
};

// As a label's value: certificates can be for any name.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string{c};
  }
  return out;
}

void head(std::string& text, const Metric& metric) {
  text += fmt::format("# HELP grus_{0} {1}\n# TYPE grus_{0} {2}\n", metric.name, metric.help, metric.type);
}

template <std::size_t kCount>
void list(std::string& text, const Metric (&metrics)[kCount], const json& all, const char* label, const char* key) {
  for (const Metric& metric : metrics) {
    const auto has = [&](const json& one) { return one.contains(metric.key); };
    if (std::none_of(all.begin(), all.end(), has)) continue;
    head(text, metric);
    for (const json& one : all) {
      if (!has(one)) continue;
      const std::string value = one[key].is_string() ? one[key].get<std::string>() : one[key].dump();
      text += fmt::format("grus_{}{{{}=\"{}\"}} {}\n", metric.name, label, escaped(value), one[metric.key].dump());
    }
  }
}

std::string answer_to(const std::string& request, const std::function<std::string()>& text) {
  const bool is_get = request.starts_with("GET ");
  const std::string path = is_get ? request.substr(4, request.find_first_of(" ?\r", 4) - 4) : "";
  const bool is_known = path == "/metrics" || path == "/";
  const char* const status = !is_get ? "405 Method Not Allowed" : is_known ? "200 OK" : "404 Not Found";
  const std::string body = is_known ? text() : "It is at /metrics.\n";
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: "
      "close\r\n\r\n{}",
      status, body.size(), body);
}

}  // namespace

std::string metrics_text(const json& status) {
  std::string text;
  text += fmt::format(
      "# HELP grus_info The server\n# TYPE grus_info gauge\ngrus_info{{version=\"{}\"}} 1\n"
      "# HELP grus_sessions Sessions now\n# TYPE grus_sessions gauge\ngrus_sessions {}\n",
      status.value("version", ""), status["sessions"].size());
  for (const Metric& metric : kOfServer) {
    head(text, metric);
    text += fmt::format("grus_{} {}\n", metric.name, status.value(metric.key, std::uint64_t{0}));
  }
  list(text, kOfDevice, status["devices"], "device", "device");
  list(text, kOfTenant, status["tenants"], "tenant", "tenant");
  return text;
}

void MetricsDoor::add_to(std::vector<pollfd>& waited_for) const {
  waited_for.push_back({listening_.get(), POLLIN, 0});
  for (const Visitor& visitor : visitors_)
    waited_for.push_back({visitor.socket.get(), static_cast<short>(visitor.answer.empty() ? POLLIN : POLLOUT), 0});
}

// Whoever asks nothing, or takes no answer, is let go.
bool MetricsDoor::is_done_with(Visitor& visitor, const std::function<std::string()>& text) {
  if (visitor.until < Clock::now()) return true;
  if (visitor.answer.empty()) {
    char more[1024];
    const ssize_t size = recv(visitor.socket.get(), more, sizeof more, MSG_DONTWAIT);
    if (size < 0) return errno != EAGAIN && errno != EINTR;
    visitor.request.append(more, static_cast<std::size_t>(size));
    const bool is_whole = visitor.request.find("\r\n\r\n") != std::string::npos;
    if (!is_whole) return size == 0 || visitor.request.size() > kLongestRequest;
    visitor.answer = answer_to(visitor.request, text);
  }
  const ssize_t sent =
      send(visitor.socket.get(), visitor.answer.data(), visitor.answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return errno != EAGAIN && errno != EINTR;
  visitor.answer.erase(0, static_cast<std::size_t>(sent));
  return visitor.answer.empty();
}

void MetricsDoor::serve(const std::function<std::string()>& text) {
  if (!is_open()) return;
  pollfd waits{listening_.get(), POLLIN, 0};
  if (poll(&waits, 1, 0) > 0) {
    if (channel::Descriptor socket = channel::accept_from(listening_); socket.get() >= 0) {
      if (visitors_.size() >= kMostVisitors) visitors_.erase(visitors_.begin());
      visitors_.push_back({std::move(socket), Clock::now() + kPatienceWithVisitors});
    }
  }
  std::erase_if(visitors_, [&](Visitor& visitor) { return is_done_with(visitor, text); });
}

}  // namespace grus::server
