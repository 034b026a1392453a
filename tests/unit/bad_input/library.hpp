// Grus as a loader gets it: the library is loaded, and calls go through the table that its platforms carry, so that no
// loader stands between a bad handle and Grus.
#pragma once

#include <CL/cl_icd.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

namespace grus::test {

struct Library {
  cl_platform_id platform = nullptr;
  const cl_icd_dispatch* table = nullptr;
  void* (*extension_address)(const char*) = nullptr;  // clGetExtensionFunctionAddress, as exported
};

// The build's own, unless GRUS_LIBRARY names another: as a variable of the environment, or of the compiler.
inline std::string library_path() {
  if (const char* elsewhere = std::getenv("GRUS_LIBRARY")) return elsewhere;
#ifdef GRUS_LIBRARY
  return GRUS_LIBRARY;
#else
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path() / "lib/libgrus.so";
#endif
}

inline Library load_library() {
  const std::string path = library_path();
  setenv("GRUS_VENDORS", "/etc/OpenCL/vendors/pocl.icd", 1);
  const auto fail = [&](const char* why) {
    std::fprintf(stderr, "%s: %s\n", path.c_str(), why);
    std::exit(1);
  };
  Library library;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) fail(dlerror());
  library.extension_address = reinterpret_cast<void* (*)(const char*)>(dlsym(handle, "clGetExtensionFunctionAddress"));
  if (!library.extension_address) fail("exports no clGetExtensionFunctionAddress");
  const auto platforms =
      reinterpret_cast<clIcdGetPlatformIDsKHR_fn>(library.extension_address("clIcdGetPlatformIDsKHR"));
  if (!platforms || platforms(1, &library.platform, nullptr) != CL_SUCCESS) {
    fail("finds no platform; PoCL is missing? (apt-get install pocl-opencl-icd)");
  }
  std::memcpy(&library.table, library.platform, sizeof library.table);
  return library;
}

inline const Library& library() {
  static const Library loaded = load_library();
  return loaded;
}

inline const cl_icd_dispatch& cl() { return *library().table; }

}  // namespace grus::test
