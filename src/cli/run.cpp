#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "base/log.hpp"
#include "cli/child.hpp"
#include "cli/command.hpp"
#include "cli/gpu_option.hpp"
#include "cli/help.hpp"
#include "cli/installation.hpp"
#include "cli/problem.hpp"
#include "cli/report.hpp"

namespace grus::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kExamples = R"(Examples:
  grus run -- clinfo -l
  grus run --objects -- ./simulation --steps 1000
  grus run --vendors pocl -- ./simulation          only this driver of /etc/OpenCL/vendors
  grus run --present-as gpu -- x264 --opencl -o out.mkv in.y4m

Exit status: the program's own; 125 Grus itself failed, 126 the program can't be executed,
127 it isn't there, 2 wrong usage.)";

struct Options {
  std::string vendors;
  std::string name;
  std::string profile;
  GpuOptions gpu;
  bool one_platform = false;
  bool compress = false;
  std::string present_as;
  std::string log;
  std::string report;
  bool objects = false;
  bool json = false;
};

// A file that is gone when the command ends.
class TemporaryFile {
 public:
  TemporaryFile() {
    const char* folder = std::getenv("TMPDIR");
    path_ = fmt::format("{}/grus-report-XXXXXX", folder && *folder ? folder : "/tmp");
    const int descriptor = mkstemp(path_.data());
    if (descriptor < 0) throw Problem{fmt::format("{}: {}", path_, std::strerror(errno)), kCannotRun};
    close(descriptor);
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void set(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), /*overwrite=*/1);
}

// Emptied now, so that it holds this run's reports only and a file that can't be written is found out at once.
std::string started_report(const std::string& file) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) throw Problem{fmt::format("--report {}: {}", file, std::strerror(errno)), kCannotRun};
  close(descriptor);
  return fs::absolute(file);
}

void set_environment(const Options& options, const Installation& installation) {
  // libgrus.so looks where the loader would unless GRUS_VENDORS is set, and there it would now find only itself.
  set("GRUS_VENDORS", choose_vendors(options.vendors, installation));
  // The Khronos loader takes a folder only, and some of its versions only with a slash at the end.
  for (const char* loader_folder : {"OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"})
    set(loader_folder, installation.icd_folder / "");
  unsetenv("OCL_ICD_FILENAMES");  // drivers that the Khronos loader would show beside Grus
  set_gpu_environment(options.gpu);
  set("GRUS_PLATFORMS", options.one_platform ? "one" : "");
  set("GRUS_COMPRESS", options.compress ? "1" : "");
  set("GRUS_PRESENT_AS", options.present_as);
  set("GRUS_LOG", options.log);
  set("GRUS_NAME", options.name);
  if (!options.profile.empty()) set("GRUS_PROFILE", fs::absolute(options.profile).string());
}

int cannot_start(const std::string& program, int error) {
  fmt::print(stderr, "grus: {}: {}\n", program, std::strerror(error));
  return error == ENOENT ? kNotFound : kNotExecutable;
}

int run_and_show(const std::vector<std::string>& program, const Options& options) {
  std::optional<TemporaryFile> temporary;
  if (options.report.empty()) {
    temporary.emplace();
    set("GRUS_REPORT", temporary->path());
  }
  const std::string report = temporary ? temporary->path() : fs::absolute(options.report).string();
  const Ended ended = run_to_end(program);
  if (ended.exec_error) return cannot_start(program[0], ended.exec_error);
  const auto reports = read_reports(report);
  if (options.json) {
    for (const auto& line : reports) fmt::print(stderr, "{}\n", line.dump());
  } else {
    print_reports(reports, stderr);
  }
  if (ended.signal) {
    temporary.reset();
    die_by(ended.signal);
  }
  return ended.exit_status;
}

int run(const std::vector<std::string>& program, const Options& options) {
  if (program.empty()) throw Problem{"which program? grus run [options] -- program [argument…]", kUsage};
  try {
    set_environment(options, find_installation_with_icd());
  } catch (const Problem& problem) {
    throw Problem{problem.what(), problem.exit_code == kUsage ? kUsage : kCannotRun};
  }
  if (!options.report.empty()) set("GRUS_REPORT", started_report(options.report));
  if (options.objects || options.json) return run_and_show(program, options);
  return cannot_start(program[0], become(program));
}

// `grus run program…` works too, as long as options for Grus come first.
std::vector<std::string> program_of(const std::vector<std::string>& rest,
                                    const std::vector<std::string>& after_dashes) {
  if (rest.empty())
    return after_dashes.empty() ? after_dashes : std::vector(after_dashes.begin() + 1, after_dashes.end());
  if (rest[0].starts_with('-')) throw Problem{fmt::format("run has no option {}", rest[0]), kUsage};
  std::vector<std::string> program = rest;  // a `--` after the program is the program's own
  program.insert(program.end(), after_dashes.begin(), after_dashes.end());
  return program;
}

}  // namespace

Subcommand add_run(CLI::App& grus, const std::vector<std::string>& after_dashes) {
  auto options = std::make_shared<Options>();
  CLI::App* app =
      grus.add_subcommand("run", "Run a program through Grus, and only Grus; nothing needs to be installed");
  app->formatter(std::make_shared<Help>("grus run [OPTIONS] [--] program [argument...]"));
  app->footer(kExamples);
  app->prefix_command();
  app->add_option("--vendors", options->vendors,
                  "Drivers to use: a folder of .icd files, one such file, the name of one in /etc/OpenCL/vendors, or a "
                  "library; else GRUS_VENDORS or OCL_ICD_VENDORS")
      ->type_name("PATH");
  app->add_option("--name", options->name, "What `grus ps`, `grus move` and the like know it by, beside its process id")
      ->type_name("NAME");
  app->add_option("--profile", options->profile,
                  "Tell the program of no more than this, so that it can move to any device that has it")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  add_gpu_options(*app, options->gpu);
  app->add_flag("--one-platform", options->one_platform, "Show equal platforms of several servers as one");
  app->add_flag("--compress", options->compress,
                "Pack data on its way to and from a tcp: server, where the link is slower than packing");
  app->add_option("--present-as", options->present_as, "What every device claims to be, for programs that want a GPU")
      ->check(CLI::IsMember({"gpu", "cpu", "accelerator"}))
      ->option_text("gpu|cpu|accelerator");
  app->add_flag("--objects", options->objects, "When the program has ended, show on stderr what it created and called");
  app->add_flag("--json", options->json, "The same as JSON, one line per process that made OpenCL calls");
  app->add_option("--report", options->report, "Write that JSON to a file")->type_name("FILE");
  app->add_option("--log", options->log, "Messages from Grus on stderr: how many")
      ->check(CLI::IsMember({"error", "warn", "info", "debug"}))
      ->option_text("error|warn|info|debug");
  return {app, [app, options, after_dashes] { return run(program_of(app->remaining(), after_dashes), *options); }};
}

}  // namespace grus::cli
