#include "channel/keys.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/log.hpp"
#include "channel/stream.hpp"
#include "cli/certificates.hpp"
#include "cli/command.hpp"
#include "cli/help.hpp"
#include "cli/problem.hpp"

namespace grus::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kExamples = R"(Examples:
  grus keys ~/.config/grus/keys --host gpu.example.org --host 192.0.2.7
  grus keys ~/.config/grus/keys --client laptop     for one more client, from the same authority
  grus keys ~/.config/grus/keys --revoke laptop     and not any more
  grus serve --listen tcp:0.0.0.0:7070              at the server
  grus run --gpu tcp:gpu.example.org:7070 -- clinfo -l

Exit status: 0 done, 1 they can't be made or are there already, 2 wrong usage.)";

constexpr int kUsualDays = 825;
constexpr int kMostDays = 3650;

struct Options {
  std::string folder;
  std::vector<std::string> hosts;
  std::string client;
  std::string revoked;
  int days = kUsualDays;
  bool token = false;
  bool force = false;
};

struct File {
  fs::path path;
  std::string text;
  mode_t mode;
};
constexpr mode_t kPublic = 0644;
constexpr mode_t kPrivate = 0600;

void make_folder(const fs::path& folder) {
  std::error_code error;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    throw Problem{fmt::format("{}: {}", folder.string(), std::strerror(errno))};
}

void write(const File& file) {
  unlink(file.path.c_str());
  const int descriptor = open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, file.mode);
  const bool done = descriptor >= 0 &&
                    ::write(descriptor, file.text.data(), file.text.size()) == static_cast<ssize_t>(file.text.size());
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (!done) throw Problem{fmt::format("{}: {}", file.path.string(), std::strerror(error))};
}

// All or none, unless one can't be written.
void write_all(const fs::path& folder, const std::vector<File>& files, const Options& options) {
  std::error_code error;
  for (const File& file : files) {
    if (!options.force && fs::exists(file.path, error)) {
      throw Problem{
          fmt::format("{} is there already; with --force it is replaced, and certificates that it has made "
                      "or is part of are worth nothing any more",
                      file.path.string())};
    }
  }
  make_folder(folder);
  for (const File& file : files) write(file);
}

std::string contents(const fs::path& file) {
  std::ifstream stream{file};
  if (!stream) {
    throw Problem{fmt::format("{}: {}; make the authority first, with --host", file.string(), std::strerror(errno))};
  }
  return {std::istreambuf_iterator<char>{stream}, {}};
}

bool is_revoked(const std::string& name, const fs::path& folder) {
  const auto names = channel::revoked_in(folder);
  return std::find(names.begin(), names.end(), name) != names.end();
}

int revoke(const Options& options) {
  const fs::path folder = options.folder;
  contents(folder / "ca.crt");  // or it isn't what was meant
  const fs::path file = folder / channel::kRevoked;
  if (!is_revoked(options.revoked, folder)) {
    std::ofstream stream{file, std::ios::app};
    stream << '\n' << options.revoked << std::endl;
    if (!stream) throw Problem{fmt::format("{}: {}", file.string(), std::strerror(errno))};
  }
  fmt::print(
      "{} is revoked in {}: copy that to the server's keys, unless these are they\n"
      "From then on it isn't let in; SIGHUP makes the server end sessions that it still has\n",
      options.revoked, file.string());
  return kDone;
}

int add_client(const Options& options) {
  const fs::path folder = options.folder;
  if (is_revoked(options.client, folder))
    throw Problem{fmt::format("{} was revoked: give the new one another name", options.client)};
  const Identity authority{contents(folder / "ca.crt"), contents(folder / "ca.key")};
  const Identity client = Authority{authority}.make_client(options.client, options.days);
  const fs::path its = folder / options.client;
  write_all(its,
            {{its / "ca.crt", authority.certificate, kPublic},
             {its / "client.crt", client.certificate, kPublic},
             {its / "client.key", client.key, kPrivate}},
            options);
  fmt::print("made {}: copy it to that client as ~/.config/grus/keys\n", its.string());
  return kDone;
}

int make_all(const Options& options) {
  const fs::path folder = options.folder;
  const Authority authority;
  const Identity own = authority.identity();
  const Identity server = authority.make_server(options.hosts, options.days);
  const Identity client = authority.make_client("client", options.days);
  std::vector<File> files = {
      {folder / "ca.crt", own.certificate, kPublic},        {folder / "ca.key", own.key, kPrivate},
      {folder / "server.crt", server.certificate, kPublic}, {folder / "server.key", server.key, kPrivate},
      {folder / "client.crt", client.certificate, kPublic}, {folder / "client.key", client.key, kPrivate}};
  if (options.token) files.push_back({folder / "token", make_token(), kPrivate});
  write_all(folder, files, options);
  fmt::print(
      "made in {}, to be copied into ~/.config/grus/keys of\n"
      "  the server  ca.crt server.crt server.key{}\n"
      "  a client    ca.crt client.crt client.key\n",
      folder.string(), options.token ? " token" : "");
  if (options.token) fmt::print("  or          ca.crt token\n");
  fmt::print("ca.key makes more of them: keep it where only you can read it\n");
  return kDone;
}

int keys(const Options& options) {
  for (const auto& host : options.hosts) {
    if (!is_host(host))
      throw Problem{fmt::format("--host {}: that is no name of a host, and no address", host), kUsage};
  }
  const auto is_plain = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '_';
  };
  for (const auto& name : {options.client, options.revoked}) {
    if (!std::all_of(name.begin(), name.end(), is_plain) || name.size() > 64)
      throw Problem{fmt::format("{}: letters, digits, - and _ make a client's name", name), kUsage};
  }
  if (!options.client.empty() + !options.hosts.empty() + !options.revoked.empty() != 1) {
    throw Problem{
        "which hosts is the server called by? --host NAME; or --client NAME, for one more client; or --revoke NAME",
        kUsage};
  }
  if (options.hosts.empty() && options.token)
    throw Problem{"--token goes with --host: all clients without a certificate share it", kUsage};
  try {
    if (!options.revoked.empty()) return revoke(options);
    return options.client.empty() ? make_all(options) : add_client(options);
  } catch (const channel::Lost& lost) {  // no OpenSSL, or a file that can't be read
    throw Problem{lost.what()};
  }
}

}  // namespace

Subcommand add_keys(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app =
      grus.add_subcommand("keys", "Make keys with which a server and its clients on other hosts know each other");
  app->footer(kExamples);
  app->add_option("folder", options->folder, "Where to put them")->required()->type_name("");
  app->add_option("--host", options->hosts, "A name or an address by which clients call the server; again for more")
      ->type_name("HOST");
  app->add_option("--client", options->client, "A certificate for one more client, in a folder of this name")
      ->type_name("NAME");
  app->add_option("--revoke", options->revoked, "Don't let this client in any more; the first one is called client")
      ->type_name("NAME");
  app->add_option("--days", options->days, fmt::format("How long certificates are valid; else {}", kUsualDays))
      ->check(CLI::Range(0, kMostDays))
      ->type_name("N");
  app->add_flag("--token", options->token, "Also a secret that clients without a certificate may show");
  app->add_flag("--force", options->force, "Replace keys that are there");
  return {app, [options] { return keys(*options); }};
}

}  // namespace grus::cli
