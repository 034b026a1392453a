// Unloading a GPU's driver and loading it again, three times in one process. Not part of `make check`: it runs on a
// machine with a GPU, with GRUS_VENDORS naming the driver's ICD file or a folder that holds only that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "base/log.hpp"
#include "executor/process_facts.hpp"
#include "executor/vendor.hpp"
#include "faults/support/vendor_use.hpp"

namespace grus::test {
namespace {

std::vector<std::string> mapped_of_driver(const std::string& library) {
  const std::string name = std::filesystem::path{library}.filename().string();
  std::vector<std::string> found;
  for (const std::string& mapped : mapped_libraries()) {
    const bool is_driver = mapped.find(name.substr(0, name.find(".so"))) != std::string::npos ||
                           mapped.find("nvidia") != std::string::npos || mapped.find("libcuda") != std::string::npos;
    if (is_driver) found.push_back(mapped);
  }
  return found;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : ", ") + line;
  return text.empty() ? "none" : text;
}

void print_state(const char* when, const std::string& library) {
  fmt::print("{:<8} threads {:>2}  device descriptors {:>2}  driver's libraries: {}\n", when, thread_count(),
             open_device_files().size(), joined(mapped_of_driver(library)));
}

TEST(GpuUnload, TakesEverythingAwayThreeTimes) {
  const auto libraries = find_vendor_libraries(vendors_path());
  if (libraries.size() != 1) GTEST_SKIP() << "GRUS_VENDORS must name one driver";
  const std::string& library = libraries[0].path;
  const int threads = thread_count();
  const auto descriptors = open_device_files();
  print_state("start", library);
  for (int time = 1; time <= 3; ++time) {
    auto vendor = Vendor::load(libraries[0]);
    ASSERT_NE(vendor, nullptr) << library;
    EXPECT_EQ(use_vendor(*vendor), "");
    print_state("used", library);
    const Vendor::Unloaded unloaded = vendor->unload();
    fmt::print("unload {}: gone {}, descriptors closed {}{}{}\n", time, unloaded.gone, unloaded.closed_descriptors,
               unloaded.why_not.empty() ? "" : ", why not: ", unloaded.why_not);
    print_state("unloaded", library);
    EXPECT_TRUE(unloaded.gone) << unloaded.why_not;
    EXPECT_EQ(joined(mapped_of_driver(library)), "none");
    EXPECT_EQ(thread_count(), threads);
    EXPECT_EQ(open_device_files(), descriptors);
  }
}

}  // namespace
}  // namespace grus::test
