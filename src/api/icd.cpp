// What an ICD loader looks for in the library: three functions and nothing else.
#include <CL/cl_icd.h>

#include "api/dispatch.hpp"
#include "api/session.hpp"
#include "move/control.hpp"

// What the library has besides the API.
static const bool g_is_set = (grus::api::g_on_first_queue = grus::move::start_control, true);

extern "C" {

// Tells any build of Grus apart from a vendor's driver, so that Grus never loads itself.
[[gnu::visibility("default")]] extern const int grus_icd_mark;
const int grus_icd_mark = 1;

[[gnu::visibility("default")]] cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint entries, cl_platform_id* platforms,
                                                                         cl_uint* count) {
  return grus::dispatch_table().clGetPlatformIDs(entries, platforms, count);
}

[[gnu::visibility("default")]] cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id platform, cl_platform_info query,
                                                                    std::size_t size, void* value,
                                                                    std::size_t* size_ret) {
  return grus::dispatch_table().clGetPlatformInfo(platform, query, size, value, size_ret);
}

[[gnu::visibility("default")]] void* CL_API_CALL clGetExtensionFunctionAddress(const char* name) {
  return grus::dispatch_table().clGetExtensionFunctionAddress(name);
}
}
