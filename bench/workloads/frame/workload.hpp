// A workload: one OpenCL program with a result that can be checked. Each has a file with a class like this and a main()
// that calls run_workload.
#pragma once

#include <functional>
#include <memory>

#include "frame/checksum.hpp"
#include "frame/frame.hpp"
#include "frame/random.hpp"

namespace CLI {
class App;
}

namespace workload {

// The device's results are wrong.
struct Wrong : Failure {
  using Failure::Failure;
};

class Workload {
 public:
  virtual ~Workload() = default;
  // Builds kernels, makes buffers and sends the inputs.
  virtual void prepare(Frame& frame) = 0;
  // One round of the work, as a program would enqueue it; nothing needs to be waited for.
  virtual void iterate(Frame& frame) = 0;
  // Reads the results back.
  virtual void collect(Frame& frame) = 0;
  // Computes them again on the CPU, in another way than the kernels do; throws Wrong.
  virtual void verify() const = 0;
  virtual void add_to(Checksum& checksum) const = 0;
};

struct About {
  const char* name;
  const char* what;
  size_t size;          // the default
  const char* size_is;  // what --size means
  unsigned iterations;  // the default
  size_t quick_size;    // for a machine without a GPU
};

// Parses the command line, runs, checks, and prints: a JSON line with the times, and the checksum on the last line.
// Exit status: 0, 1 the result is wrong, 2 it couldn't run. add_options is for a workload with options of its own; they
// are parsed before the workload is made.
int run_workload(int argc, char** argv, const About& about,
                 const std::function<std::unique_ptr<Workload>(size_t size)>& make,
                 const std::function<void(CLI::App& app)>& add_options = {});

template <class T>
int run_workload(int argc, char** argv, const About& about) {
  return run_workload(argc, argv, about, [](size_t size) { return std::make_unique<T>(size); });
}

// Throws Wrong unless each is within `relative` of what is expected, or within `absolute` of it.
void expect_close(const char* what, std::span<const float> results, std::span<const float> expected, double relative,
                  double absolute);
// The same for one value, with its own bound on the error.
void expect_near(const char* what, size_t index, double result, double expected, double bound);
void expect_same(const char* what, std::span<const std::uint32_t> results, std::span<const std::uint32_t> expected);

}  // namespace workload
