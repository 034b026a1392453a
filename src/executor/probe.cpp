#include "executor/probe.hpp"

#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/log.hpp"

namespace grus {
namespace {

namespace fs = std::filesystem;

constexpr int kProbeSeconds = 20;

fs::path list_of_good_libraries() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return fs::path{cache} / "grus" / "libraries";
  const char* home = std::getenv("HOME");
  return home && *home ? fs::path{home} / ".cache" / "grus" / "libraries" : fs::path{};
}

// What the child reports, in one line. Without a whole line it has ended before its time, whatever its exit status.
constexpr char kLoads = 'l';  // and the library's real path follows, by which the parent remembers it
constexpr char kIsGrus = 'g';
constexpr char kCannotBeLoaded = 'n';  // the parent will see the same, and can tell why

[[noreturn]] void report_and_end(int report, char kind, const char* path) {
  const std::string line = fmt::format("{}{}\n", kind, path);
  _exit(write(report, line.data(), line.size()) < 0 ? 1 : 0);
}

// The child's whole life. Nobody's exit handlers run in it, even if the library calls exit: they are the program's.
[[noreturn]] void load_in_child(const std::string& library, int report) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM, SIGALRM}) std::signal(signal, SIG_DFL);
  alarm(kProbeSeconds + 1);  // a worker's sandbox lets nobody end it
  on_exit([](int status, void*) { _exit(status); }, nullptr);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
  }
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) report_and_end(report, kCannotBeLoaded, "");
  if (dlsym(handle, kGrusMark)) report_and_end(report, kIsGrus, "");
  using AddressFunction = void* (*)(const char*);
  const auto address = reinterpret_cast<AddressFunction>(dlsym(handle, "clGetExtensionFunctionAddress"));
  if (address) {
    const auto platforms =
        reinterpret_cast<cl_int (*)(cl_uint, cl_platform_id*, cl_uint*)>(address("clIcdGetPlatformIDsKHR"));
    cl_uint count = 0;
    if (platforms) platforms(0, nullptr, &count);
  }
  link_map* map = nullptr;
  dlinfo(handle, RTLD_DI_LINKMAP, &map);
  report_and_end(report, kLoads, map ? map->l_name : "");
}

// Reads what the child reports: a line, less if the child ends before, nothing if the time is up.
std::optional<std::string> read_report(int report) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{kProbeSeconds};
  std::string text;
  while (!text.ends_with('\n')) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return {};
    pollfd waiting{report, POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(left)) <= 0) continue;  // the time is up, or the program's signals interrupt
    char part[512];
    const ssize_t size = read(report, part, sizeof part);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(part, static_cast<std::size_t>(size));
  }
  return text;
}

// Changes whenever the file does.
std::string fingerprint_of(const std::string& path) {
  struct stat facts {};
  if (path.empty() || stat(path.c_str(), &facts) != 0) return {};
  return fmt::format("{} {}.{}", facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
}

// A line of the list: the library as it is named, its real path, its fingerprint.
bool is_known_good(const std::string& library) {
  std::ifstream list{list_of_good_libraries()};
  const std::string prefix = library + '\t';
  for (std::string line; std::getline(list, line);) {
    const auto tab = line.rfind('\t');
    if (!line.starts_with(prefix) || tab < prefix.size()) continue;
    const std::string fingerprint = fingerprint_of(line.substr(prefix.size(), tab - prefix.size()));
    if (!fingerprint.empty() && line.substr(tab + 1) == fingerprint) return true;
  }
  return false;
}

void remember_as_good(const std::string& library, const std::string& path) {
  const std::string fingerprint = fingerprint_of(path);
  const fs::path list = list_of_good_libraries();
  if (fingerprint.empty() || list.empty()) return;
  std::error_code error;
  fs::create_directories(list.parent_path(), error);
  // Opened for appending and written at once, so that processes starting together don't mix their lines.
  std::ofstream{list, std::ios::app} << fmt::format("{}\t{}\t{}\n", library, path, fingerprint);
}

std::string describe_end(std::optional<int> status) {
  if (!status) return "it crashed or ended the process while loading";
  if (WIFSIGNALED(*status)) return fmt::format("it crashed while loading ({})", strsignal(WTERMSIG(*status)));
  return fmt::format("it ended the process while loading (exit status {})", WEXITSTATUS(*status));
}

}  // namespace

Probed probe_library(const std::string& library) {
  if (is_known_good(library)) return {};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return {};
  }
  if (child == 0) load_in_child(library, ends[1]);
  close(ends[1]);
  const auto report = read_report(ends[0]);
  close(ends[0]);
  if (!report) kill(child, SIGKILL);
  int status = 0;
  pid_t waited = 0;
  do {
    waited = waitpid(child, &status, 0);
  } while (waited < 0 && errno == EINTR);
  if (!report) return {Probed::Kind::misbehaves, fmt::format("it hung for {} s while loading", kProbeSeconds)};
  // A program that ignores its children, or waits for all of them, takes the status; only the report is certain.
  if (!report->ends_with('\n')) {
    return {Probed::Kind::misbehaves, describe_end(waited == child ? std::optional{status} : std::nullopt)};
  }
  if (report->front() == kIsGrus) return {Probed::Kind::is_grus, {}};
  if (report->front() == kLoads) remember_as_good(library, report->substr(1, report->size() - 2));
  return {};
}

}  // namespace grus
