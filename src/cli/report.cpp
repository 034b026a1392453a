#include "cli/report.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/log.hpp"
#include "cli/table.hpp"

namespace grus::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t kCallsShown = 12;

// A report may come from another version of Grus: what is missing or of another kind counts as nothing.
std::uint64_t number(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<std::uint64_t>() : 0;
}

std::string text(const json& object, const char* name, const char* otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

json part(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? json{} : *found;
}

using Calls = std::vector<std::pair<std::string, std::uint64_t>>;

Calls calls_of(const json& report) {
  Calls calls;
  const json counts = part(report, "calls");
  for (const auto& [name, count] : counts.items()) {
    if (count.is_number() && count > 0) calls.emplace_back(name, count.get<std::uint64_t>());
  }
  std::stable_sort(calls.begin(), calls.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return calls;
}

std::uint64_t sum(auto begin, auto end) {
  std::uint64_t total = 0;
  for (; begin != end; ++begin) total += begin->second;
  return total;
}

Table object_table(const json& report) {
  Table table{{{"object"}, {"created", Align::right}, {"live at exit", Align::right}}};
  const json objects = part(report, "objects");
  for (const auto& [type, counts] : objects.items()) {
    if (!counts.is_object() || number(counts, "created") == 0) continue;
    table.add({type, with_thousands(number(counts, "created")), with_thousands(number(counts, "live"))});
  }
  return table;
}

Table call_table(const Calls& calls) {
  Table table{{{"call"}, {"times", Align::right}}};
  const auto shown = calls.begin() + static_cast<std::ptrdiff_t>(std::min(calls.size(), kCallsShown));
  for (auto call = calls.begin(); call != shown; ++call) table.add({call->first, with_thousands(call->second)});
  if (shown != calls.end()) {
    table.add({fmt::format("{} others", calls.end() - shown), with_thousands(sum(shown, calls.end()))});
  }
  return table;
}

void print_report(const json& report, const Style& style, std::FILE* out) {
  const Calls calls = calls_of(report);
  fmt::print(out, "{}\n",
             style.bold(fmt::format("grus: {} (process {}): {} OpenCL calls", text(report, "program", "?"),
                                    number(report, "pid"), with_thousands(sum(calls.begin(), calls.end())))));
  const Table objects = object_table(report);
  if (!objects.empty()) fmt::print(out, "\n{}", objects.text(style, 2));
  fmt::print(out, "\n{}\n", call_table(calls).text(style, 2));
  if (const auto held_back = number(report, "held_back")) {
    fmt::print(out, "  held back behind user events: {} commands\n", with_thousands(held_back));
  }
  const json immovable = part(report, "immovable");
  if (!immovable.is_array() || immovable.empty()) {
    fmt::print(out, "  nothing was used that can't be moved\n");
  }
  for (const auto& reason : immovable) {
    if (reason.is_string()) fmt::print(out, "  can't be moved: {}\n", reason.get<std::string>());
  }
}

}  // namespace

Reports read_reports(const std::filesystem::path& file) {
  Reports reports;
  std::ifstream lines{file};
  for (std::string line; std::getline(lines, line);) {
    json report = json::parse(line, nullptr, /*allow_exceptions=*/false);  // a process may be killed while it writes
    if (report.is_object() && !calls_of(report).empty()) reports.push_back(std::move(report));
  }
  return reports;
}

void print_reports(const Reports& reports, std::FILE* out) {
  const Style style{out};
  if (reports.empty()) {
    fmt::print(out, "grus: no process that has ended made an OpenCL call through Grus\n");
  }
  for (const json& report : reports) print_report(report, style, out);
}

}  // namespace grus::cli
