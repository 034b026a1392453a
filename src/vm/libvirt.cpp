#include "vm/libvirt.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <thread>

namespace grus::vm {
namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenLooks = 100ms;
constexpr const char* kNotThere = "not there";
constexpr std::string_view kAgentPort = "org.grus.agent.0";
constexpr std::string_view kGpuPort = "org.grus.gpu.0";  // to the host's

// In the metadata of a domain that `grus vm migrate` sends.
constexpr std::string_view kMark = R"(<grus:migrating xmlns:grus="urn:grus"/>)";
constexpr std::string_view kMarkBegins = "<grus:migrating ";

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

// libvirt writes XML in one way only, so it is enough to look for texts.
std::string_view channel_in(std::string_view xml, std::string_view name) {
  constexpr std::string_view kEnd = "</channel>";
  for (std::size_t start = 0; (start = xml.find("<channel ", start)) != std::string_view::npos;) {
    const std::size_t end = xml.find(kEnd, start);
    if (end == std::string_view::npos) break;
    const std::string_view channel = xml.substr(start, end - start);
    if (contains(channel, fmt::format(" name='{}'", name))) return channel;
    start = end;
  }
  return {};
}

bool has_card(std::string_view xml) { return contains(xml, fmt::format("<alias name='{}'/>", kCardAlias)); }

std::string marked(std::string xml) {
  constexpr std::string_view kMetadata = "<metadata>";
  if (const std::size_t place = xml.find(kMetadata); place != std::string::npos)
    return xml.insert(place + kMetadata.size(), kMark);
  return xml.insert(xml.rfind("</domain>"), fmt::format("<metadata>{}</metadata>", kMark));
}

// Of lines "name: number"; 0 if there is none.
std::uint64_t number_in(const std::string& text, const std::string& name) {
  const std::size_t line = ("\n" + text).find(fmt::format("\n{}: ", name));
  return line == std::string::npos ? 0 : std::strtoull(text.c_str() + line + name.size() + 2, nullptr, 10);
}

}  // namespace

Ran Domain::try_virsh(const std::vector<std::string>& words, const std::string& input,
                      const std::function<void()>& meanwhile) const {
  std::vector<std::string> command{"virsh", "--quiet", "--connect", machine_.libvirt};
  command.insert(command.end(), words.begin(), words.end());
  Ran ran = run(command, input, meanwhile);
  ran.said = trimmed(std::move(ran.said));
  return ran;
}

std::string Domain::virsh(const std::vector<std::string>& words, const std::string& input) const {
  Ran ran = try_virsh(words, input);
  if (ran.status != 0) throw Failed{fmt::format("virsh {}: {}", words[0], ran.said)};
  return std::move(ran.said);
}

std::string Domain::status() {
  Ran ran = try_virsh({"domstate", machine_.domain});
  if (ran.status == 0) return std::move(ran.said);
  if (contains(ran.said, "failed to get domain")) return kNotThere;
  throw Gone{fmt::format("{}: {}", machine_.libvirt, ran.said)};
}

std::string Domain::agent_socket() {
  if (!machine_.agent.empty()) return machine_.agent;
  const std::string its_xml = xml();
  const std::string_view channel = channel_in(its_xml, kAgentPort);
  constexpr std::string_view kPath = " path='";
  const std::size_t path = channel.find(kPath);
  if (path == std::string_view::npos)
    throw Failed{fmt::format("{} has no channel {} with a socket, which its agent needs", machine_.name, kAgentPort)};
  const std::string_view rest = channel.substr(path + kPath.size());
  return std::string{rest.substr(0, rest.find('\''))};
}

void Domain::check_it_can_leave() {
  const std::string its_xml = xml();
  for (std::size_t at = 0; (at = its_xml.find("<shmem ", at)) != std::string::npos; ++at) {
    if (!contains(its_xml.substr(at, its_xml.find('>', at) - at), "role='master'"))
      throw Failed{fmt::format(
          "{} has a shared-memory device that libvirt doesn't send along; it does with role='master'", machine_.name)};
  }
}

void Domain::check_it_can_come() {
  const std::string its_status = status();
  if (its_status != kNotThere && its_status != "shut off")
    throw Failed{fmt::format("{} is there already: {}", machine_.name, its_status)};
}

bool Domain::has_gpu() { return machine_.is_given_card() && has_card(xml()); }

void Domain::detach_gpu(std::chrono::seconds patience) {
  const auto until = Clock::now() + patience;
  virsh({"detach-device-alias", machine_.domain, kCardAlias, "--live"});
  while (has_gpu()) {
    if (Clock::now() > until)
      throw Failed{fmt::format("the guest didn't let go of the card within {} s", patience.count())};
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void Domain::send_to(const Machine& destination, Timeline& /*timeline*/, const std::atomic<bool>& cancelled) {
  const std::string its_xml = marked(virsh({"dumpxml", machine_.domain, "--migratable", "--security-info"}));
  std::vector<std::string> words{"migrate", machine_.domain, destination.libvirt, "--live", "--xml", "/dev/stdin"};
  if (!destination.incoming.empty()) words.insert(words.end(), {"--migrateuri", destination.incoming});
  bool is_cancelled = false;
  const Ran ran = try_virsh(words, its_xml, [&] {
    if (cancelled && !is_cancelled) is_cancelled = try_virsh({"domjobabort", machine_.domain}).status == 0;
  });
  if (ran.status == 0) return;
  if (is_cancelled) throw Failed{"cancelled"};
  throw Failed{fmt::format("libvirt's migration failed: {}", ran.said)};
}

void Domain::resume() {
  throw Failed{"libvirt has left it paused, since it may run at the other host: see there before `virsh resume`"};
}

json Domain::figures_of_travel(const Machine& destination) {
  // Nothing depends on them: what can't be had is 0.
  const Ran ran = Domain{destination}.try_virsh({"domjobinfo", destination.domain, "--completed", "--rawstats"});
  return {{"downtime_ms", number_in(ran.said, "downtime")},
          {"total_ms", number_in(ran.said, "time_elapsed")},
          {"ram_bytes", number_in(ran.said, "memory_processed")}};
}

std::string take_domain(const std::string& name, const std::string& xml) {
  if (const std::size_t mark = xml.find(kMarkBegins); mark != std::string::npos) {
    const std::size_t end = xml.find("/>", mark);
    return std::string{xml}.erase(mark, end - mark + 2);
  }
  if (channel_in(xml, kAgentPort).empty()) return {};
  if (has_card(xml) || !channel_in(xml, kGpuPort).empty())
    throw Failed{
        fmt::format("the programs of {0} use a GPU, which they must leave before: where it runs now, "
                    "`grus vm migrate {0} --to …` has them do that",
                    name)};
  return {};
}

}  // namespace grus::vm
