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

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

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

// The child's whole life. It reports the library's real path, by which the parent remembers it, and ends without
// running anybody's exit handlers.
[[noreturn]] void load_in_child(const std::string& library, int report) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM}) std::signal(signal, SIG_DFL);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
  }
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) _exit(0);  // the parent will see the same, and can tell why
  link_map* map = nullptr;
  dlinfo(handle, RTLD_DI_LINKMAP, &map);
  using AddressFunction = void* (*)(const char*);
  const auto address = reinterpret_cast<AddressFunction>(dlsym(handle, "clGetExtensionFunctionAddress"));
  if (address) {
    const auto platforms = reinterpret_cast<cl_int (*)(cl_uint, cl_platform_id*, cl_uint*)>(address("clIcdGetPlatformIDsKHR"));
    cl_uint count = 0;
    if (platforms) platforms(0, nullptr, &count);
  }
  if (map && write(report, map->l_name, std::strlen(map->l_name)) < 0) _exit(1);
  _exit(0);
}

// Reads what the child reports until it closes its end, or the time is up.
std::string read_report(int report, bool& in_time) {
  std::string text;
  char part[512];
  in_time = true;
  for (;;) {
    pollfd waiting{report, POLLIN, 0};
    if (poll(&waiting, 1, kProbeSeconds * 1000) == 0) {
      in_time = false;
      return text;
    }
    const ssize_t size = read(report, part, sizeof part);
    if (size <= 0) return text;
    text.append(part, static_cast<std::size_t>(size));
  }
}

std::string fingerprint_of(const std::string& path) {
  struct stat facts {};
  if (path.empty() || stat(path.c_str(), &facts) != 0) return {};
  return fmt::format("{} {} {}.{}", path, facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
}

bool is_known_good(const std::string& library) {
  std::ifstream list{list_of_good_libraries()};
  const std::string prefix = library + '\t';
  for (std::string line; std::getline(list, line);) {
    if (!line.starts_with(prefix)) continue;
    const std::string fingerprint = line.substr(prefix.size());
    const std::string path = fingerprint.substr(0, fingerprint.find(' '));
    if (fingerprint_of(path) == fingerprint) return true;
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
  std::ofstream{list, std::ios::app} << library + '\t' + fingerprint + '\n';
}

}  // namespace

std::string probe_library(const std::string& library) {
  if (is_known_good(library)) return {};
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child < 0) {
    close(report[0]);
    close(report[1]);
    return {};
  }
  if (child == 0) load_in_child(library, report[1]);
  close(report[1]);
  bool in_time = false;
  const std::string path = read_report(report[0], in_time);
  close(report[0]);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) return fmt::format("it hung for {} s while loading", kProbeSeconds);
  if (WIFSIGNALED(status)) return fmt::format("it crashed while loading ({})", strsignal(WTERMSIG(status)));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    return fmt::format("it ended the process while loading (exit status {})", WEXITSTATUS(status));
  }
  remember_as_good(library, path);
  return {};
}

}  // namespace grus
