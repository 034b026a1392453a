// What the fake driver is to do wrong, from the environment: FAKE_VENDOR=what[,what…], read when the library is loaded.
//
//   crash:load  abort:load  hang:load  exit:load    in the library's constructor
//   crash:NAME  abort:NAME  hang:NAME  exit:NAME    in the entry point NAME, clIcdGetPlatformIDsKHR for example
//   fail:NAME=CODE     that entry point returns this error: fail:clEnqueueNDRangeKernel=-5
//   no-icd             clIcdGetPlatformIDsKHR isn't there
//   no-platforms       it is, and finds none
//   buffers=COUNT      memory runs out when so many buffers exist
//   contexts=COUNT@NAME  all processes that say this name have so many at a time, and no more
//   unified            its memory is the host's
//   hold               commands wait until somebody calls fake_vendor_let_go()
//   device=PATH        the first context opens this file, and nobody ever closes it
//   library=PATH       the first context loads this library, and nobody ever unloads it
//   runs=PATH          queues are made by this program, once it is there: a driver that somebody has taken over
//   say=DESCRIPTOR     the constructor writes a byte there, before anything of the above happens
#pragma once

#include <CL/cl.h>

#include <optional>
#include <string>

namespace fake {

bool is_told(const std::string& what);
std::optional<std::string> value_of(const std::string& what);  // of what=value

// Misbehaves if told to in this place, and says which error is to be returned, if any.
cl_int misbehave_in(const char* place);

}  // namespace fake
