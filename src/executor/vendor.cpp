#include "executor/vendor.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "base/log.hpp"
#include "executor/probe.hpp"
#include "executor/process_facts.hpp"

namespace grus {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSystemFolder = "/etc/OpenCL/vendors";
constexpr const char* kHiddenSuffix = ".grus";  // what `grus enable` appends to the ICD files that Grus mirrors

// Empty if there is none: the file may be anything.
std::string library_named_in(const fs::path& icd_file) {
  std::error_code error;
  if (!fs::is_regular_file(icd_file, error)) return {};
  std::string line(PATH_MAX, '\0');
  std::ifstream file{icd_file};
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  line.resize(std::min(line.find('\n'), line.size()));
  line.resize(line.find_last_not_of(" \t\r") + 1);
  const bool is_text =
      std::none_of(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; });
  return is_text ? line : std::string{};
}

bool is_icd_file(const fs::path& path) {
  return path.extension() == ".icd" || (path.extension() == kHiddenSuffix && path.stem().extension() == ".icd");
}

std::vector<fs::path> icd_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator{folder, error}) {
    if (is_icd_file(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Grus itself, perhaps installed beside the vendors: already loaded, and never to be mirrored.
bool is_loaded_grus(const std::string& library) {
  void* loaded = library.empty() ? nullptr : dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (!loaded) return false;
  const bool is_grus = dlsym(loaded, kGrusMark) != nullptr;
  dlclose(loaded);
  return is_grus;
}

// A driver that two files name is one driver: an upgrade brings back a file that `grus enable` has hidden.
std::vector<VendorLibrary> libraries_named_in(const std::vector<fs::path>& files) {
  std::vector<VendorLibrary> found;
  std::set<std::string> known;
  for (const fs::path& file : files) {
    const std::string library = library_named_in(file);
    std::error_code error;
    const bool is_path = library.find('/') != std::string::npos;
    const std::string real = is_path ? fs::weakly_canonical(library, error).string() : library;
    if (!library.empty() && !known.insert(real.empty() ? library : real).second) continue;
    found.push_back({library, file});
  }
  return found;
}

bool names_only_grus(const std::vector<VendorLibrary>& libraries) {
  return !libraries.empty() && std::all_of(libraries.begin(), libraries.end(),
                                           [](const VendorLibrary& named) { return is_loaded_grus(named.path); });
}

bool is_nvidias(const std::string& library) {
  const std::string name = fs::path{library}.filename().string();
  return name.find("nvidia") != std::string::npos || name.starts_with("libcuda.so");
}

// Whether a library is of those that work with such a device.
bool may_use(const std::string& library, const std::string& device_file) {
  const std::string name = fs::path{library}.filename().string();
  return (device_file.starts_with("/dev/nvidia") && is_nvidias(library)) ||
         (device_file.starts_with("/dev/dri/") && name.starts_with("libdrm")) ||
         (device_file.starts_with("/dev/kfd") && name.starts_with("libhsa"));
}

// NVIDIA's driver loads more libraries of its own, libcuda.so and compilers, and leaves them behind. The one reference
// that it took to each is dropped; what somebody else uses stays. Not done for others, nor to others' libraries: those
// in the same folder, loaded since, are the program's.
void drop_leftovers(const std::set<std::string>& before, const fs::path& folder) {
  std::set<std::string> tried = before;
  for (const std::string& library : mapped_libraries()) {
    if (!is_nvidias(library) || fs::path{library}.parent_path() != folder || !tried.insert(library).second) continue;
    void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) continue;  // gone with one that used it
    dlclose(handle);        // the reference just taken
    dlclose(handle);        // the driver's
  }
}

// Where an ICD loader was told to look: a folder, an ICD file, or the name of one in the system's folder.
fs::path loaders_path(const char* value) {
  std::error_code error;
  const fs::path path{value};
  return path.has_parent_path() || fs::exists(path, error) ? path : fs::path{kSystemFolder} / path;
}

std::mutex g_shared_mutex;  // guards what follows
// By library. They stay until they are unloaded: loaded once more, a library couldn't be.
auto& g_shared = *new std::map<std::string, std::shared_ptr<Vendor>>;

}  // namespace

fs::path vendors_path() {
  if (const char* value = std::getenv("GRUS_VENDORS"); value && *value) return value;
  for (const char* variable : {"OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"}) {
    const char* value = std::getenv(variable);
    if (!value || !*value) continue;
    fs::path path = loaders_path(value);
    std::error_code error;
    // The loader was told to show only Grus, so the drivers that Grus is to mirror are elsewhere.
    const auto files = fs::is_directory(path, error) ? icd_files_in(path) : std::vector{path};
    if (!names_only_grus(libraries_named_in(files))) return path;
  }
  return kSystemFolder;
}

std::vector<VendorLibrary> find_vendor_libraries(const fs::path& where) {
  constexpr const char* kInstall = "install an OpenCL driver (on Debian: pocl-opencl-icd)";
  std::error_code error;
  std::vector<VendorLibrary> found;
  if (fs::is_directory(where, error)) {
    found = libraries_named_in(icd_files_in(where));
    if (found.empty()) log::error("vendors", "{}: no .icd file in it; {}", where.string(), kInstall);
  } else if (is_icd_file(where)) {
    if (fs::exists(where, error)) {
      found = libraries_named_in({where});
    } else {
      log::error("vendors", "{}: no such file; GRUS_VENDORS or --vendors must name an .icd file or a folder of them",
                 where.string());
    }
  } else if (where.string().find(".so") != std::string::npos) {
    found = {{where.string(), {}}};
  } else {
    log::error("vendors", "{}: no such folder; {} or name its folder with --vendors", where.string(), kInstall);
  }
  if (names_only_grus(found)) {
    log::error("vendors", "{} names only Grus itself, and no driver for it to use; {} or name one with --vendors",
               where.string(), kInstall);
  }
  return found;
}

std::shared_ptr<Vendor> Vendor::share(const VendorLibrary& from) {
  const std::lock_guard lock{g_shared_mutex};
  const auto known = g_shared.find(from.path);
  if (known != g_shared.end()) return known->second;
  std::shared_ptr<Vendor> vendor = load(from);
  if (vendor) g_shared[from.path] = vendor;
  return vendor;
}

std::vector<std::string> Vendor::unload_shared() {
  std::vector<std::string> staying;
  const std::lock_guard lock{g_shared_mutex};
  std::erase_if(g_shared, [&](const auto& entry) {
    const auto& [path, vendor] = entry;
    if (vendor.use_count() > 1) {
      staying.push_back(fmt::format("{} stays loaded: it is still in use", path));
      return false;
    }
    const Unloaded unloaded = vendor->unload();
    if (!unloaded.gone) staying.push_back(unloaded.why_not);
    return true;
  });
  return staying;
}

std::unique_ptr<Vendor> Vendor::load(const VendorLibrary& from) {
  const auto refuse = [&](std::string_view why) -> std::unique_ptr<Vendor> {
    const std::string file = from.icd_file.string();
    const std::string source = file.empty()        ? from.path
                               : from.path.empty() ? file
                                                   : fmt::format("{} (named in {})", from.path, file);
    log::warn("vendors", "{} is left out: {}; reinstall that driver or remove the file", source, why);
    return nullptr;
  };
  if (from.path.empty()) return refuse("the file names no library");
  if (is_loaded_grus(from.path)) return nullptr;
  const Probed probed = probe_library(from.path);
  if (probed.kind == Probed::Kind::is_grus) return nullptr;  // another build of it
  if (probed.kind == Probed::Kind::misbehaves) return refuse(probed.problem);

  std::unique_ptr<Vendor> vendor{new Vendor};
  vendor->path_ = from.path;
  vendor->files_before_ = open_device_files();
  vendor->libraries_before_ = mapped_libraries();
  vendor->handle_ = dlopen(from.path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!vendor->handle_) {
    const char* why = dlerror();
    return refuse(why ? why : "it can't be loaded");
  }
  link_map* map = nullptr;
  if (dlinfo(vendor->handle_, RTLD_DI_LINKMAP, &map) == 0) vendor->folder_ = fs::path{map->l_name}.parent_path();
  const auto unload_and_refuse = [&](std::string_view why) {
    dlclose(vendor->handle_);
    return refuse(why);
  };
  const auto address =
      reinterpret_cast<cl_api_clGetExtensionFunctionAddress>(dlsym(vendor->handle_, "clGetExtensionFunctionAddress"));
  if (!address) return unload_and_refuse("it is no OpenCL driver (clGetExtensionFunctionAddress is missing)");
  const auto platforms = reinterpret_cast<cl_api_clGetPlatformIDs>(address("clIcdGetPlatformIDsKHR"));
  if (!platforms) return unload_and_refuse("it is no installable client driver (clIcdGetPlatformIDsKHR is missing)");
  cl_uint count = 0;
  const cl_int code = platforms(0, nullptr, &count);
  if (code != CL_SUCCESS || count == 0) {  // a driver without hardware: normal, and no fault
    log::info("vendors", "{} offers no platform (OpenCL error {})", from.path, code);
    dlclose(vendor->handle_);
    return nullptr;
  }
  vendor->platforms_.resize(count);
  if (platforms(count, vendor->platforms_.data(), nullptr) != CL_SUCCESS)
    return unload_and_refuse("it can't list its platforms");
  std::erase(vendor->platforms_, nullptr);
  return vendor;
}

std::string Vendor::describe_unloading() const {
  // The dynamic linker never unloads a library that asks for it, or that defines unique symbols (STB_GNU_UNIQUE), as
  // C++ libraries with inline statics do. Only a trial can tell, so drivers that are known to work are named.
  if (is_nvidias(path_)) return "yes";
  return "no: the dynamic linker keeps the library, or one that it uses, until the process ends";
}

Vendor::Unloaded Vendor::unload() {
  Unloaded result;
  platforms_.clear();
  dlclose(handle_);
  handle_ = nullptr;
  if (void* still = dlopen(path_.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
    dlclose(still);
    result.why_not = fmt::format(
        "{} stays loaded: it, or a library that it uses, can't be unloaded or is in use elsewhere in this process",
        path_);
    return result;
  }
  if (is_nvidias(path_)) drop_leftovers(libraries_before_, folder_);
  DeviceFiles left_open = open_device_files();
  std::erase_if(left_open, [this](const auto& left) { return files_before_.contains(left.first); });
  // Other libraries of the same vendor, loaded by somebody else in the process, may have opened these as well.
  for (const std::string& library : mapped_libraries()) {
    for (const auto& [descriptor, file] : left_open) {
      if (!may_use(library, file)) continue;
      result.why_not = fmt::format("{} is still in use in this process: {} and the like stay open", library, file);
      return result;
    }
  }
  for (const auto& [descriptor, file] : left_open) {
    if (close(descriptor) == 0) ++result.closed_descriptors;
  }
  result.gone = true;
  return result;
}

}  // namespace grus
