// Loading the vendors' drivers, as an ICD loader does, and unloading them.
#pragma once

#include <CL/cl_icd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "executor/process_facts.hpp"

namespace grus {

// Every object of a vendor's starts with a pointer to the vendor's functions.
template <typename Handle>
const cl_icd_dispatch& functions(Handle handle) {
  // Whatever handle is asked about was made here: ids are checked above the seam, or by the session of a worker.
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
  return **reinterpret_cast<const cl_icd_dispatch* const*>(handle);
}

inline cl_int status_of(cl_event event) {
  cl_int status = CL_QUEUED;
  functions(event).clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  return status;
}
// Or failed.
inline bool is_finished(cl_event event) { return status_of(event) <= CL_COMPLETE; }

// Which libraries to load, from the ICD files that GRUS_VENDORS names (a folder, an .icd file or a library), else where
// the ICD loader was told to look (OCL_ICD_VENDORS, OPENCL_VENDOR_PATH) unless only Grus is there, else the system's
// folder. Files that `grus enable` has hidden from loaders count too.
struct VendorLibrary {
  std::string path;                // or a name that the dynamic linker finds
  std::filesystem::path icd_file;  // empty if the library was named itself
};
std::filesystem::path vendors_path();
std::vector<VendorLibrary> find_vendor_libraries(const std::filesystem::path& where);

class Vendor {
 public:
  // Null, with a message that says what to do, if the library can't be loaded, is Grus itself, or would crash.
  static std::unique_ptr<Vendor> load(const VendorLibrary& from);
  // The same one for all who want the library.
  static std::shared_ptr<Vendor> share(const VendorLibrary& from);
  // Unloads those that were shared, and aren't any more. Says of each that stays loaded why.
  static std::vector<std::string> unload_shared();

  ~Vendor() = default;
  Vendor(const Vendor&) = delete;
  Vendor& operator=(const Vendor&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<cl_platform_id>& platforms() const { return platforms_; }

  // All objects of the vendor's must be released. Says in `why_not` what stays behind, if anything does.
  struct Unloaded {
    bool gone = false;
    std::string why_not;
    int closed_descriptors = 0;
  };
  Unloaded unload();
  // Whether that can work at all, for people: "yes", or "no: why".
  std::string describe_unloading() const;

 private:
  Vendor() = default;

  std::string path_;  // of the library
  void* handle_ = nullptr;
  std::vector<cl_platform_id> platforms_;
  std::filesystem::path folder_;            // where the library is
  DeviceFiles files_before_;                // open in the process before the library was loaded
  std::set<std::string> libraries_before_;  // mapped in the process before that
};

}  // namespace grus
