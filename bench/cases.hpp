// What `overhead` measures. A case is opened once, sampled many times, and checks the data it moved.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "opencl.hpp"

namespace bench {

// Sizes that depend on the device, so that the native and the Grus process are told the same ones.
struct Sizes {
  size_t bulk;        // bytes of one bulk transfer
  size_t large_maps;  // maps of a large buffer per run: free on a CPU, a transfer elsewhere
};

struct OpenCase {
  size_t calls = 1;               // by which the time of one run is divided
  size_t bytes = 0;               // moved by one run; 0: the value is time per call
  std::function<void()> prepare;  // before each run, not timed
  std::function<void()> run;      // timed
  std::function<void()> verify;   // after the last run; throws Failure
};

struct Case {
  const char* name;
  const char* unit;  // "ns" and "us" per call, or "GB/s"
  const char* about;
  OpenCase (*open)(const Device&, const Sizes&);
};

const std::vector<Case>& cases();

// Seconds that one run took.
double time_run(const OpenCase& open_case);
// In the case's unit.
double value_of(const Case& which, const OpenCase& open_case, double seconds);

}  // namespace bench
