#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/folder_change.hpp"
#include "cli/installation.hpp"
#include "cli/problem.hpp"
#include "cli/table.hpp"

// Loaders read the files *.icd of the vendors' folder; libgrus.so reads *.icd.grus as well. So renaming a vendor's file
// hides it from programs, which would otherwise see its devices twice, and leaves it to Grus.

namespace grus::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kIcdFile = "grus.icd";
constexpr const char* kHidden = ".grus";

constexpr const char* kEnableExamples =
    R"(Writes grus.icd, and renames every other .icd file to .icd.grus, so that no device shows twice.
Programs started from then on go through Grus; those that run already don't notice. Run it
again after a driver was installed or upgraded: its new .icd file is then hidden as well.

Examples:
  grus enable --dry-run          show what would be done
  sudo grus enable)";

constexpr const char* kDisableExamples = R"(Examples:
  grus disable --dry-run         show what would be done
  sudo grus disable)";

struct Options {
  std::string folder = kSystemVendors;
  bool dry_run = false;
};

struct Step {
  enum class Kind { write, rename, remove } kind;
  std::string name;
  std::string to_or_text;
  std::string verb;
  std::string remark;
};

bool is_icd_file(const std::string& name) { return name.ends_with(".icd"); }
bool is_hidden_file(const std::string& name) { return name.ends_with(".icd.grus"); }

std::set<std::string> files_in(const fs::path& folder) {
  std::error_code error;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator{folder, error}) {
    if (entry.is_regular_file(error) || entry.is_symlink(error)) names.insert(entry.path().filename());
  }
  if (error) {
    throw Problem{fmt::format("{}: {}; install an OpenCL driver first, or name its folder with --vendors-dir",
                              folder.string(), error.message())};
  }
  return names;
}

void refuse_foreign_icd(const fs::path& icd_file) {
  const std::string library = library_named_in(icd_file);
  if (library.empty() || fs::path{library}.filename().string().starts_with("libgrus.so")) return;
  throw Problem{fmt::format("{} names {}, which isn't Grus: rename that file first", icd_file.string(), library)};
}

std::vector<Step> steps_to_enable(const fs::path& folder, const fs::path& library) {
  const std::set<std::string> files = files_in(folder);
  refuse_foreign_icd(folder / kIcdFile);
  std::vector<Step> steps;
  // Written first: programs that start between two steps see a device twice rather than not at all.
  if (library_named_in(folder / kIcdFile) != library) {
    steps.push_back({Step::Kind::write, kIcdFile, library.string() + "\n", "write", "names " + library.string()});
  }
  for (const std::string& name : files) {
    if (!is_icd_file(name) || name == kIcdFile) continue;
    const std::string hidden = name + kHidden;
    const bool upgraded = files.contains(hidden);
    steps.push_back({Step::Kind::rename, name, hidden, "hide",
                     fmt::format("as {}{}", hidden, upgraded ? ", in place of the older one" : "")});
  }
  return steps;
}

std::vector<Step> steps_to_disable(const fs::path& folder) {
  const std::set<std::string> files = files_in(folder);
  refuse_foreign_icd(folder / kIcdFile);
  std::vector<Step> steps;
  for (const std::string& name : files) {
    if (!is_hidden_file(name)) continue;
    const std::string shown = name.substr(0, name.size() - std::string_view{kHidden}.size());
    if (files.contains(shown)) {
      steps.push_back({Step::Kind::remove, name, "", "remove", fmt::format("a newer {} is there", shown)});
    } else {
      steps.push_back({Step::Kind::rename, name, shown, "show", "as " + shown});
    }
  }
  if (files.contains(kIcdFile))
    steps.push_back({Step::Kind::remove, kIcdFile, "", "remove", "loaders find Grus no longer"});
  return steps;
}

void take(FolderChange& change, const Step& step) {
  switch (step.kind) {
    case Step::Kind::write:
      return change.write(step.name, step.to_or_text);
    case Step::Kind::rename:
      return change.rename(step.name, step.to_or_text);
    case Step::Kind::remove:
      return change.remove(step.name);
  }
}

void print_steps(const fs::path& folder, const std::vector<Step>& steps) {
  fmt::print("{}:\n", folder.string());
  std::size_t width = 0;
  for (const Step& step : steps) width = std::max(width, step.name.size());
  for (const Step& step : steps) {
    fmt::print("  {:<6}  {:<{}}  {}\n", step.verb, step.name, width, step.remark);
  }
}

int change(const Options& options, const std::function<std::vector<Step>()>& plan, std::string_view already,
           std::string_view done) {
  const fs::path folder = options.folder;
  const auto act = [&](FolderChange* change) {
    const std::vector<Step> steps = plan();
    if (steps.empty()) {
      fmt::print("{}: nothing to do: {}\n", folder.string(), already);
      return;
    }
    if (change) {
      for (const Step& step : steps) take(*change, step);
      change->commit();
    }
    print_steps(folder, steps);
    fmt::print("{}\n", change ? done : "Nothing was done: --dry-run.");
  };
  if (options.dry_run) {
    act(nullptr);
    return kDone;
  }
  files_in(folder);                    // says what to do if the folder isn't there
  FolderChange folder_change{folder};  // from here on nobody else changes it
  try {
    act(&folder_change);
  } catch (const Problem& problem) {  // on its way out everything is put back
    throw Problem{fmt::format("{}; nothing was changed", problem.what())};
  }
  return kDone;
}

std::shared_ptr<Options> add_options(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--dry-run", options->dry_run, "Only show what would be done");
  app.add_option("--vendors-dir", options->folder,
                 fmt::format("The folder that holds the .icd files; else {}", kSystemVendors))
      ->option_text("DIR");
  return options;
}

}  // namespace

Subcommand add_enable(CLI::App& grus) {
  CLI::App* app = grus.add_subcommand("enable", "Put every OpenCL program of this system on Grus; needs root");
  app->footer(kEnableExamples);
  const auto options = add_options(*app);
  return {app, [options] {
            const fs::path libgrus = find_installation().libgrus;
            return change(
                *options, [&] { return steps_to_enable(options->folder, libgrus); }, "Grus is enabled",
                "Grus is enabled. `grus disable` undoes this.");
          }};
}

Subcommand add_disable(CLI::App& grus) {
  CLI::App* app = grus.add_subcommand("disable", "Undo `grus enable`; needs root");
  app->footer(kDisableExamples);
  const auto options = add_options(*app);
  return {app, [options] {
            return change(
                *options, [&] { return steps_to_disable(options->folder); }, "Grus isn't enabled",
                "Grus is disabled: programs find the vendors' drivers again.");
          }};
}

}  // namespace grus::cli
