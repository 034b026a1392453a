// Programs: what they were made of, kept by value, and what their last build told.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "objects/context.hpp"
#include "objects/kernel_facts.hpp"

namespace grus {

enum class ProgramOrigin : std::uint8_t { source, il, binary, built_in, linked };

// Everything needed to make the program again, on this device or on another.
struct Recipe {
  struct Header {
    std::string name;
    std::shared_ptr<const Recipe> recipe;
  };
  ProgramOrigin origin = ProgramOrigin::source;
  std::string source;  // or the names of built-in kernels
  Bytes il;
  std::map<cl_uint, Bytes> specialization_constants;
  std::string options;         // of the last build, compile or link
  bool compiled_only = false;  // made by clCompileProgram
  std::vector<Header> headers;
  std::vector<std::shared_ptr<const Recipe>> inputs;  // of a link
  std::vector<Bytes> vendor_binaries;                 // for programs from binaries, one per device
  std::shared_ptr<const Recipe> fallback;             // for those from Grus's own binaries: how they were made
};

struct DeviceBuild {
  cl_build_status status = CL_BUILD_NONE;
  std::string options;  // as the program gave them
  std::string log;
  cl_program_binary_type binary_type = CL_PROGRAM_BINARY_TYPE_NONE;
  std::size_t global_variables = 0;
};

// What came of a build below the seam.
struct BuildOutcome {
  cl_int code = CL_SUCCESS;
  bool created = false;             // there is a program below now, whether its build worked or not
  std::vector<DeviceBuild> builds;  // one per device of the program
  bool executable = false;
  std::vector<std::string> kernel_names;
};

class Program : public Object {
 public:
  explicit Program(Context& context_) : context{&context_} {}
  ~Program() {
    if (created) context->below.load(std::memory_order_relaxed)->free(ObjectType::program, id());
  }

  // Everything known of the build before is forgotten. To be called with the mutex held.
  void accept(BuildOutcome outcome) {
    created = true;
    executable = outcome.executable;
    kernel_names = std::move(outcome.kernel_names);
    builds = std::move(outcome.builds);
    kernel_facts.clear();
    binaries.clear();
    ++build_number;
  }

  // Of the last build, on any device. To be called with the mutex held.
  bool has_failed() const {
    return std::any_of(builds.begin(), builds.end(),
                       [](const DeviceBuild& build) { return build.status == CL_BUILD_ERROR; });
  }

  const Ref<Context> context;
  std::vector<Ref<Device>> devices;
  std::atomic<bool> created{false};  // below the seam
  std::atomic<cl_uint> kernels{0};   // attached: clBuildProgram is refused while there are any

  std::mutex mutex;  // guards what follows
  std::shared_ptr<const Recipe> recipe;
  std::vector<DeviceBuild> builds;  // one per device
  bool building = false;
  bool executable = false;
  std::vector<std::string> kernel_names;  // of an executable
  std::map<std::string, std::shared_ptr<KernelFacts>> kernel_facts;
  // For programs from Grus's container: what a vendor's binary can't tell.
  std::map<std::string, std::vector<ArgumentFacts>> known_arguments;
  std::vector<Bytes> binaries;  // as handed to the program, since the last build
  bool from_binary = false;
  std::uint64_t build_number = 0;  // of the last build below the seam
};

}  // namespace grus
