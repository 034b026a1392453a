// Where Grus is on this machine, and which vendors' drivers it is to load.
#pragma once

#include <filesystem>
#include <string>

namespace grus::cli {

// Where loaders look for ICD files unless told otherwise.
inline constexpr const char* kSystemVendors = "/etc/OpenCL/vendors";

struct Installation {
  std::filesystem::path libgrus;
  std::filesystem::path
      icd_folder;  // holds only grus.icd: ocl-icd takes a file too, but the Khronos loader wants a folder
};

// Found from this executable's place, so that a build tree works as an installed Grus does. Throws Problem.
Installation find_installation();
// The same, after a check that grus.icd is there and names that library.
Installation find_installation_with_icd();

// What GRUS_VENDORS is to be: `wanted` (--vendors) if it isn't empty, else what the environment says, else the system's
// folder. Absolute, for the program may change its folder; never Grus itself, so that `grus run` works within `grus
// run`.
std::string choose_vendors(const std::string& wanted, const Installation& installation);

// The library that an ICD file names; empty if none.
std::string library_named_in(const std::filesystem::path& icd_file);

}  // namespace grus::cli
