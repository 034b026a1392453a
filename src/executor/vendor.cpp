#include "executor/vendor.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "base/log.hpp"
#include "executor/probe.hpp"
#include "executor/process_facts.hpp"

namespace grus {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSystemFolder = "/etc/OpenCL/vendors";
constexpr const char* kHiddenSuffix = ".grus";  // what `grus enable` appends to the ICD files that Grus mirrors

std::string library_named_in(const fs::path& icd_file) {
  std::ifstream file{icd_file};
  std::string library;
  std::getline(file, library);
  const auto end = library.find_last_not_of(" \t\r\n");
  return end == std::string::npos ? std::string{} : library.substr(0, end + 1);
}

bool is_icd_file(const fs::path& path) {
  return path.extension() == ".icd" || (path.extension() == kHiddenSuffix && path.stem().extension() == ".icd");
}

// Any build of Grus exports this; it tells Grus apart from the drivers that it is to load.
constexpr const char* kGrusMark = "grus_icd_mark";

}  // namespace

fs::path vendors_path() {
  for (const char* variable : {"GRUS_VENDORS", "OCL_ICD_VENDORS"}) {
    const char* value = std::getenv(variable);
    if (value && *value) return value;
  }
  return kSystemFolder;
}

std::vector<VendorLibrary> find_vendor_libraries(const fs::path& where) {
  std::error_code error;
  if (fs::is_regular_file(where, error) && is_icd_file(where)) return {{library_named_in(where), where}};
  if (!fs::is_directory(where, error)) {
    if (where.extension() == ".icd") {
      log::error("vendors", "{}: no such file; GRUS_VENDORS or --vendors must name an .icd file or a folder of them", where.string());
      return {};
    }
    if (where.string().find(".so") != std::string::npos) return {{where.string(), {}}};
    log::error("vendors", "{}: no such folder; install an OpenCL driver (on Debian: pocl-opencl-icd) or name its folder with --vendors",
               where.string());
    return {};
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator{where, error}) {
    if (is_icd_file(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    log::error("vendors", "{}: no .icd file in it; install an OpenCL driver (on Debian: pocl-opencl-icd)", where.string());
  }
  std::vector<VendorLibrary> found;
  for (const auto& file : files) found.push_back({library_named_in(file), file});
  return found;
}

std::unique_ptr<Vendor> Vendor::load(const VendorLibrary& from) {
  const auto refuse = [&](std::string_view why) -> std::unique_ptr<Vendor> {
    const std::string source = from.icd_file.empty() ? from.library : fmt::format("{} (named in {})", from.library, from.icd_file.string());
    log::warn("vendors", "{} is left out: {}; reinstall that driver or remove the file", source, why);
    return nullptr;
  };
  if (from.library.empty()) return refuse("the file names no library");
  // Grus itself, perhaps installed beside the vendors: already loaded, and never to be mirrored.
  if (void* self = dlopen(from.library.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD)) {
    const bool is_grus = dlsym(self, kGrusMark) != nullptr;
    dlclose(self);
    if (is_grus) return nullptr;
  }
  if (const std::string problem = probe_library(from.library); !problem.empty()) return refuse(problem);

  std::unique_ptr<Vendor> vendor{new Vendor};
  vendor->library_ = from.library;
  vendor->descriptors_before_ = open_device_files();
  vendor->mapped_before_ = mapped_libraries();
  vendor->handle_ = dlopen(from.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!vendor->handle_) {
    const char* why = dlerror();
    return refuse(why ? why : "it can't be loaded");
  }
  if (dlsym(vendor->handle_, kGrusMark)) {  // another build of Grus
    dlclose(vendor->handle_);
    return nullptr;
  }
  const auto unload_and_refuse = [&](std::string_view why) {
    dlclose(vendor->handle_);
    return refuse(why);
  };
  const auto address = reinterpret_cast<cl_api_clGetExtensionFunctionAddress>(dlsym(vendor->handle_, "clGetExtensionFunctionAddress"));
  if (!address) return unload_and_refuse("it is no OpenCL driver (clGetExtensionFunctionAddress is missing)");
  const auto platforms = reinterpret_cast<cl_api_clGetPlatformIDs>(address("clIcdGetPlatformIDsKHR"));
  if (!platforms) return unload_and_refuse("it is no installable client driver (clIcdGetPlatformIDsKHR is missing)");
  cl_uint count = 0;
  const cl_int code = platforms(0, nullptr, &count);
  if (code != CL_SUCCESS || count == 0) {  // a driver without hardware: normal, and no fault
    log::info("vendors", "{} offers no platform (OpenCL error {})", from.library, code);
    dlclose(vendor->handle_);
    return nullptr;
  }
  vendor->platforms_.resize(count);
  if (platforms(count, vendor->platforms_.data(), nullptr) != CL_SUCCESS) return unload_and_refuse("it can't list its platforms");
  std::erase(vendor->platforms_, nullptr);
  return vendor;
}

std::string Vendor::describe_unloading() const {
  // The dynamic linker never unloads a library that asks for it, or that defines unique symbols (STB_GNU_UNIQUE), as C++
  // libraries with inline statics do. Only a trial can tell, so drivers that are known to work are named.
  if (library_.find("nvidia") != std::string::npos) return "yes";
  return "no: the dynamic linker keeps the library, or one that it uses, until the process ends";
}

Vendor::Unloaded Vendor::unload() {
  Unloaded result;
  platforms_.clear();
  dlclose(handle_);
  handle_ = nullptr;
  if (void* still = dlopen(library_.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
    dlclose(still);
    result.why_not = fmt::format("{} stays loaded: it, or a library that it uses, can't be unloaded", library_);
    return result;
  }
  // Other libraries of the same driver, loaded by somebody else in the process, still need their descriptors.
  for (const std::string& library : mapped_libraries()) {
    if (!mapped_before_.contains(library) && library.find("nvidia") != std::string::npos) {
      result.why_not = fmt::format("{} is still in use in this process", library);
      return result;
    }
  }
  for (const int descriptor : open_device_files()) {
    if (descriptors_before_.contains(descriptor)) continue;
    if (close(descriptor) == 0) ++result.closed_descriptors;
  }
  result.gone = true;
  return result;
}

}  // namespace grus
