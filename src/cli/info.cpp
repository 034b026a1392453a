#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/gpu_option.hpp"
#include "cli/installation.hpp"
#include "cli/problem.hpp"
#include "cli/table.hpp"
#include "executor/vendor.hpp"

namespace grus::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kExamples = R"(Examples:
  grus info
  grus info --vendors pocl       only this driver of /etc/OpenCL/vendors
  grus info --json | jq '.platforms[].devices[].name'

Exit status: 0 there is a device, 1 there is none, 2 wrong usage.)";

constexpr std::size_t kIndent = 4;  // of what is said about a device
constexpr std::size_t kLabel = 13;  // width of the words in front of it

struct Options {
  std::string vendors;
  GpuOptions gpu;
  bool json = false;
};

// As in libgrus.so: what can be moved from and to the device, and what can't and why, as JSON text.
using DescribeDevice = cl_int(CL_API_CALL*)(cl_device_id, std::size_t size, void* text, std::size_t* size_ret);

struct Grus {
  std::vector<cl_platform_id> platforms;
  DescribeDevice describe = nullptr;  // a library of another version may not have it
};

// Loaded as an ICD loader would, so that it needs no loader and shows only what Grus offers.
Grus load(const Installation& installation) {
  void* library = dlopen(installation.libgrus.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Problem{fmt::format("{}; build or install Grus again", dlerror())};
  const auto address =
      reinterpret_cast<cl_api_clGetExtensionFunctionAddress>(dlsym(library, "clGetExtensionFunctionAddress"));
  const auto get_platforms =
      address ? reinterpret_cast<cl_api_clGetPlatformIDs>(address("clIcdGetPlatformIDsKHR")) : nullptr;
  if (!get_platforms) throw Problem{fmt::format("{} is no OpenCL driver", installation.libgrus.string())};
  Grus grus;
  grus.describe = reinterpret_cast<DescribeDevice>(address("grusDescribeDevice"));
  cl_uint count = 0;
  if (get_platforms(0, nullptr, &count) == CL_SUCCESS && count > 0) {
    grus.platforms.resize(count);
    if (get_platforms(count, grus.platforms.data(), nullptr) != CL_SUCCESS) grus.platforms.clear();
  }
  return grus;
}

template <typename Query>
std::string text_of(Query query) {
  std::size_t size = 0;
  if (query(0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (query(size, text.data(), nullptr) != CL_SUCCESS) return {};
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

std::string platform_text(cl_platform_id platform, cl_platform_info what) {
  return text_of([&](std::size_t size, void* value, std::size_t* size_ret) {
    return functions(platform).clGetPlatformInfo(platform, what, size, value, size_ret);
  });
}

std::string device_text(cl_device_id device, cl_device_info what) {
  return text_of([&](std::size_t size, void* value, std::size_t* size_ret) {
    return functions(device).clGetDeviceInfo(device, what, size, value, size_ret);
  });
}

template <typename T>
T device_value(cl_device_id device, cl_device_info what) {
  T value{};
  functions(device).clGetDeviceInfo(device, what, sizeof value, &value, nullptr);
  return value;
}

const char* type_name(cl_device_type type) {
  if (type & CL_DEVICE_TYPE_GPU) return "GPU";
  if (type & CL_DEVICE_TYPE_CPU) return "CPU";
  if (type & CL_DEVICE_TYPE_ACCELERATOR) return "accelerator";
  return "custom";
}

json device_facts(const Grus& grus, cl_device_id device) {
  json facts = {
      {"name", device_text(device, CL_DEVICE_NAME)},
      {"type", type_name(device_value<cl_device_type>(device, CL_DEVICE_TYPE))},
      {"version", device_text(device, CL_DEVICE_VERSION)},
      {"driver_version", device_text(device, CL_DRIVER_VERSION)},
      {"compute_units", device_value<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS)},
      {"memory_bytes", device_value<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE)},
  };
  if (!grus.describe) return facts;
  const std::string text = text_of([&](std::size_t size, void* value, std::size_t* size_ret) {
    return grus.describe(device, size, value, size_ret);
  });
  const json described = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (described.is_object()) facts.update(described);
  return facts;
}

json platform_facts(const Grus& grus, cl_platform_id platform) {
  cl_uint count = 0;
  functions(platform).clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
  std::vector<cl_device_id> devices(count);
  if (count > 0) functions(platform).clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr);
  json facts = {
      {"name", platform_text(platform, CL_PLATFORM_NAME)},
      {"vendor", platform_text(platform, CL_PLATFORM_VENDOR)},
      {"version", platform_text(platform, CL_PLATFORM_VERSION)},
      {"devices", json::array()},
  };
  for (cl_device_id device : devices) facts["devices"].push_back(device_facts(grus, device));
  return facts;
}

std::string text_at(const json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// One line, or several that hang below the first, behind the bars of the tree.
void print_fact(std::string_view bars, std::string_view label, std::string_view text) {
  const std::string lines = wrapped_text(text, bars.size() + kIndent + kLabel);
  std::string out;
  for (std::size_t start = 0; start <= lines.size();) {
    const std::size_t end = std::min(lines.find('\n', start), lines.size());
    const std::string_view line = std::string_view{lines}.substr(start, end - start);
    if (start == 0) {
      out += fmt::format("{}{:{}}{:<{}}{}\n", bars, "", kIndent, label, kLabel, line);
    } else {
      out += fmt::format("{}{}\n", bars, line.substr(std::min(bars.size(), line.size())));
    }
    start = end + 1;
  }
  fmt::print("{}", out);
}

void print_movability(const json& device, std::string_view bars) {
  const json driver = device.value("driver", json::object());
  if (const auto library = text_at(driver, "library"); !library.empty()) print_fact(bars, "driver", library);
  if (const auto unload = text_at(driver, "unload"); !unload.empty()) print_fact(bars, "unloads", unload);
  std::string_view label = "can move";
  for (const json& entry : device.value("movable", json::array())) {
    if (const auto what = text_at(entry, "what"); !what.empty()) print_fact(bars, std::exchange(label, ""), what);
  }
  label = "not offered";
  for (const json& entry : device.value("not_offered", json::array())) {
    if (const auto what = text_at(entry, "what"); !what.empty()) {
      print_fact(bars, std::exchange(label, ""), fmt::format("{}: {}", what, text_at(entry, "why")));
    }
  }
}

enum class Place { last, before_others };

void print_device(const json& device, std::size_t number, Place place, const Style& style) {
  const bool last = place == Place::last;
  fmt::print(" {} Device #{}: {}\n", last ? "`--" : "+--", number, style.bold(text_at(device, "name")));
  const std::string_view bars = last ? "  " : " |";
  const auto memory = text_at(device, "memory");
  print_fact(bars, "kind",
             fmt::format("{}, {}, {} compute units", text_at(device, "type"), text_at(device, "version"),
                         device.value("compute_units", 0U)));
  print_fact(bars, "memory",
             fmt::format("{}{}{}", size_text(device.value("memory_bytes", std::uint64_t{0})),
                         memory.empty() ? "" : ", ", memory));
  print_movability(device, bars);
}

void print_platforms(const json& platforms) {
  const Style style{stdout};
  std::size_t platform_number = 0;
  for (const json& platform : platforms) {
    fmt::print("Platform #{}: {}\n", platform_number++, style.bold(text_at(platform, "name")));
    const json& devices = platform["devices"];
    for (std::size_t number = 0; number < devices.size(); ++number) {
      print_device(devices[number], number, number + 1 == devices.size() ? Place::last : Place::before_others, style);
    }
  }
}

int info(const Options& options) {
  const Installation installation = find_installation();
  const std::string vendors = choose_vendors(options.vendors, installation);
  setenv("GRUS_VENDORS", vendors.c_str(), /*overwrite=*/1);
  set_gpu_environment(options.gpu);
  const Grus grus = load(installation);
  json platforms = json::array();
  std::size_t devices = 0;
  for (cl_platform_id platform : grus.platforms) {
    platforms.push_back(platform_facts(grus, platform));
    devices += platforms.back()["devices"].size();
  }
  if (options.json) {
    // Names come from drivers, which needn't be careful about their encoding.
    const json all = {{"version", GRUS_VERSION}, {"vendors", vendors}, {"platforms", platforms}};
    fmt::print("{}\n", all.dump(2, ' ', false, json::error_handler_t::replace));
  } else {
    print_platforms(platforms);
  }
  if (devices > 0) return kDone;
  if (const char* gpu = std::getenv("GRUS_GPU"); gpu && *gpu) {
    fmt::print(stderr, "grus: no OpenCL device at {}\n", gpu);
  } else {
    fmt::print(stderr, "grus: no OpenCL device: looked for drivers in {}\n", vendors);
  }
  return kFailed;
}

}  // namespace

Subcommand add_info(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app =
      grus.add_subcommand("info", "List platforms and devices, and for each what can be moved and what can't");
  app->footer(kExamples);
  app->add_flag("--json", options->json, "As JSON, for scripts");
  app->add_option("--vendors", options->vendors, "Drivers to use, as for `grus run`")->type_name("PATH");
  add_gpu_options(*app, options->gpu);
  return {app, [options] { return info(*options); }};
}

}  // namespace grus::cli
