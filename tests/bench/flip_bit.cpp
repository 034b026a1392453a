// Preloaded into a program, flips one bit of what it reads from the device: FLIP_BIT says which bit of the read's
// start.
#include <CL/cl.h>
#include <dlfcn.h>

#include <cstdlib>

extern "C" CL_API_ENTRY cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                                               size_t offset, size_t size, void* to, cl_uint count,
                                                               const cl_event* waits, cl_event* event) {
  static const auto next = reinterpret_cast<decltype(&clEnqueueReadBuffer)>(dlsym(RTLD_NEXT, "clEnqueueReadBuffer"));
  const cl_int code = next(queue, buffer, blocking, offset, size, to, count, waits, event);
  const char* bit = std::getenv("FLIP_BIT");
  if (!bit || code != CL_SUCCESS || size == 0) return code;
  const auto place = static_cast<size_t>(std::atol(bit));
  static_cast<unsigned char*>(to)[place / 8] ^= static_cast<unsigned char>(1U << place % 8);
  return code;
}
