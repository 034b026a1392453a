// overhead: times OpenCL calls and transfers on one device, as samples, one JSON line each. Run natively and through
// Grus by overhead_run.py, which compares; on its own it only prints.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cases.hpp"

namespace {

using bench::Case;
using bench::Failure;
using nlohmann::json;

constexpr size_t kMiB = size_t{1024} * 1024;

const Case& find_case(const std::string& name) {
  const auto& all = bench::cases();
  const auto found = std::ranges::find_if(all, [&](const Case& one) { return one.name == name; });
  if (found == all.end()) throw Failure("no case is called '" + name + "': see --list");
  return *found;
}

// Keeps one case open at a time, for bulk cases hold gigabytes.
class Sampler {
 public:
  Sampler(const bench::Device& device, const bench::Sizes& sizes) : device_(device), sizes_(sizes) {}

  // The first run is not counted: it warms what the case's first use, or another process, left cold.
  void sample(const std::string& name, size_t samples) {
    open(name);
    bench::time_run(open_);
    std::vector<double> values;
    for (size_t i = 0; i < samples; ++i) values.push_back(bench::value_of(*which_, open_, bench::time_run(open_)));
    open_.verify();  // what moved wrong data has no time
    for (const double value : values)
      std::cout << json{{"case", which_->name}, {"unit", which_->unit}, {"value", value}} << '\n';
    std::cout.flush();
  }
  void close() {
    open_ = {};
    which_ = nullptr;
  }

 private:
  void open(const std::string& name) {
    const auto& wanted = find_case(name);
    if (which_ == &wanted) return;
    close();
    open_ = wanted.open(device_, sizes_);
    which_ = &wanted;
  }

  const bench::Device& device_;
  bench::Sizes sizes_;
  const Case* which_ = nullptr;
  bench::OpenCase open_;
};

json describe(const bench::Device& device, const bench::Sizes& sizes) {
  return {{"platform", device.platform_text(CL_PLATFORM_NAME)},
          {"platform_version", device.platform_text(CL_PLATFORM_VERSION)},
          {"device", device.text(CL_DEVICE_NAME)},
          {"driver", device.text(CL_DRIVER_VERSION)},
          {"cpu", device.is_cpu()},
          {"bulk_mib", sizes.bulk / kMiB},
          {"large_maps", sizes.large_maps}};
}

// Lines "CASE SAMPLES" and "close" on standard input; so a harness can let several processes take turns.
void serve(Sampler& sampler) {
  std::string name;
  while (std::cin >> name) {
    size_t samples = 0;
    if (name == "close") {
      sampler.close();
      std::cout << json{{"closed", true}} << std::endl;
    } else if (std::cin >> samples) {
      sampler.sample(name, samples);
    }
  }
}

void list() {
  for (const auto& one : bench::cases())
    std::cout << json{{"case", one.name}, {"unit", one.unit}, {"about", one.about}} << '\n';
}

struct Options {
  bench::Choice choice;
  std::vector<std::string> names;
  size_t samples = 5;
  size_t bulk_mib = 0;
  size_t large_maps = 0;
  bool list = false;
  bool serve = false;
};

bench::Sizes sizes_for(const bench::Device& device, const Options& options) {
  const size_t usual_mib = device.is_cpu() ? 256 : 1024;
  const size_t usual_maps = device.is_cpu() ? 400 : 10;
  return {(options.bulk_mib ? options.bulk_mib : usual_mib) * kMiB,
          options.large_maps ? options.large_maps : usual_maps};
}

void measure(const Options& options) {
  bench::Device device{options.choice};
  device.build(bench::kCountingKernels);
  const auto sizes = sizes_for(device, options);
  std::cout << describe(device, sizes) << std::endl;
  Sampler sampler{device, sizes};
  if (options.serve) return serve(sampler);
  if (!options.names.empty()) {
    for (const auto& name : options.names) sampler.sample(name, options.samples);
  } else {
    for (const auto& one : bench::cases()) sampler.sample(one.name, options.samples);
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app{"Times OpenCL calls and transfers on one device, and checks the data moved. One JSON line per sample."};
  app.add_option("--platform", options.choice.platform, "part of the platform's name");
  app.add_option("--device", options.choice.device, "part of the device's name");
  app.add_option("--case", options.names, "case to run, again for more; all if none");
  app.add_option("--samples", options.samples, "samples of each case")->capture_default_str();
  app.add_option("--bulk-mib", options.bulk_mib, "size of bulk transfers; 256 on a CPU, else 1024");
  app.add_option("--large-maps", options.large_maps, "maps of large buffers per sample; 400 on a CPU, else 10");
  app.add_flag("--list", options.list, "list the cases");
  app.add_flag("--serve", options.serve, "take 'CASE SAMPLES' lines on standard input");
  CLI11_PARSE(app, argc, argv);
  if (options.list) {
    list();
  } else {
    measure(options);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "overhead: %s\n", failure.what());
    return 1;
  }
}
