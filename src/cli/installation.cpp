#include "cli/installation.hpp"

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/log.hpp"
#include "cli/problem.hpp"

namespace grus::cli {
namespace fs = std::filesystem;
namespace {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return {};
  return value;
}

// What people write for a driver: a path, or, as ocl-icd understands OCL_ICD_VENDORS, the name of a file in the
// system's folder (perhaps hidden there by `grus enable`).
std::optional<fs::path> existing_vendors(const std::string& name) {
  std::error_code error;
  if (fs::exists(name, error)) return fs::absolute(name);
  if (name.find('/') != std::string::npos) return {};
  for (const char* suffix : {"", ".icd", ".grus", ".icd.grus"}) {
    const fs::path file = fs::path{kSystemVendors} / (name + suffix);
    if (fs::exists(file, error)) return file;
  }
  return {};
}

bool is_grus_itself(const fs::path& vendors, const Installation& installation) {
  std::error_code error;
  return fs::equivalent(vendors, installation.icd_folder, error) ||
         fs::equivalent(vendors, installation.icd_folder / "grus.icd", error) ||
         fs::equivalent(vendors, installation.libgrus, error) ||
         fs::equivalent(library_named_in(vendors), installation.libgrus, error);
}

}  // namespace

std::string library_named_in(const fs::path& icd_file) {
  std::error_code error;
  if (!fs::is_regular_file(icd_file, error)) return {};
  std::ifstream file{icd_file};
  std::string library;
  std::getline(file, library);
  return library.substr(0, library.find_last_not_of(" \t\r\n") + 1);
}

Installation find_installation() {
  const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
  std::stringstream folders{GRUS_LIBRARY_FOLDERS};
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path lib = (bin / folder).lexically_normal();
    std::error_code error;
    if (fs::exists(lib / "libgrus.so", error)) return {lib / "libgrus.so", lib / "grus-vendors"};
  }
  throw Problem{fmt::format("{} isn't there; build or install Grus again",
                            (bin / "../lib/libgrus.so").lexically_normal().string())};
}

Installation find_installation_with_icd() {
  Installation found = find_installation();
  const fs::path icd_file = found.icd_folder / "grus.icd";
  const std::string named = library_named_in(icd_file);
  std::error_code error;
  if (named.empty()) throw Problem{fmt::format("{} isn't there; build or install Grus again", icd_file.string())};
  if (!fs::equivalent(named, found.libgrus, error)) {
    throw Problem{fmt::format("{} names {}, not {}: was Grus moved? Build or install it again", icd_file.string(),
                              named, found.libgrus.string())};
  }
  return found;
}

std::string choose_vendors(const std::string& wanted, const Installation& installation) {
  if (!wanted.empty()) {
    if (const auto path = existing_vendors(wanted)) return *path;
    // A library that the dynamic linker finds by its name.
    if (wanted.find('/') == std::string::npos && wanted.find(".so") != std::string::npos) return wanted;
    throw Problem{fmt::format("--vendors {}: no such folder, .icd file or driver", wanted), kUsage};
  }
  for (const char* name : {"GRUS_VENDORS", "OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"}) {
    const auto value = environment(name);
    if (!value) continue;
    const auto path = existing_vendors(*value);
    if (path && is_grus_itself(*path, installation)) continue;
    return path ? path->string() : *value;  // what doesn't exist is libgrus's to complain about
  }
  return kSystemVendors;
}

}  // namespace grus::cli
