// What programs see while Grus is enabled: every device once, and through Grus. What the two commands do to the files
// of the folder is tested with the other commands.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "faults/support/folders.hpp"
#include "faults/support/opencl.hpp"

namespace grus::test {
namespace fs = std::filesystem;
namespace {

class Enable : public FaultTest {
 protected:
  Enable() {
    set("OCL_ICD_VENDORS", vendors());
    set("OPENCL_VENDOR_PATH", vendors());
    unset("GRUS_VENDORS");
  }

  Ended grus(const std::string& subcommand, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command{grus_command(), subcommand, "--vendors-dir", vendors()};
    command.insert(command.end(), more.begin(), more.end());
    return run(command);
  }
  void expect_done(const Ended& ended, std::string_view output) const {
    EXPECT_TRUE(ended.exited_with(0)) << ended;
    EXPECT_NE(ended.output.find(output), std::string::npos) << ended;
    EXPECT_EQ(ended.errors, "");
  }
  void expect_refused(const Ended& ended, int status, std::string_view message) const {
    EXPECT_TRUE(ended.exited_with(status)) << ended;
    EXPECT_TRUE(ended.said(message)) << ended;
  }

  // All files, hidden ones too: what they hold, and when they were written.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator{vendors()}) {
      const auto time = fs::last_write_time(entry.path()).time_since_epoch().count();
      found[entry.path().filename()] = read(entry.path()) + "|" + std::to_string(time);
    }
    return found;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& [name, text] : files()) found.push_back(name);
    return found;
  }
  // What a program sees, and whose it is.
  void expect_devices(const std::string& devices, const std::string& suffix) const {
    const Ended ended = run([&] {
      require(list_devices() == devices, "these devices, each once:\n" + list_devices());
      for (const Listed& listed : list_platforms()) {
        char text[32] = {};
        cl().clGetPlatformInfo(listed.platform, CL_PLATFORM_ICD_SUFFIX_KHR, sizeof text, text, nullptr);
        require(text == suffix, "the platform is of " + suffix);
      }
      Workload{kFake}.use();
    });
    EXPECT_TRUE(ended.exited_with(0)) << ended;
    EXPECT_EQ(ended.errors, "");
  }
};

constexpr const char* kFakeDevice = "Grus Fake: Grus Fake device\n";
using Names = std::vector<std::string>;

TEST_F(Enable, ShowsEveryDeviceOnceAndIsUndoneExactly) {
  add_fake();
  write(vendors() / "README", "not an ICD file\n");
  const auto before = files();
  expect_devices(kFakeDevice, "FAKE");

  expect_done(grus("enable"), "Grus is enabled");
  EXPECT_EQ(names(), (Names{"README", "fake.icd.grus", "grus.icd"}));
  EXPECT_EQ(read(vendors() / "grus.icd"), fs::canonical(grus_library()).string() + "\n");
  expect_devices(kFakeDevice, "GRUS");

  expect_done(grus("disable"), "Grus is disabled");
  EXPECT_EQ(files(), before);
  expect_devices(kFakeDevice, "FAKE");
}

TEST_F(Enable, MirrorsAllDriversOfTheFolder) {
  if (!kOtherProgramsCanLoadGrus) GTEST_SKIP() << "not with sanitizers";
  add_fake();
  add_pocl();
  // "Platform #0: name" and " `-- Device #0: name", without the numbers: loaders differ in their order.
  const auto listed = [&] {
    const Ended ended = run({"clinfo", "-l"});
    EXPECT_TRUE(ended.exited_with(0)) << ended;
    std::istringstream lines{ended.output};
    std::multiset<std::string> names;
    for (std::string line; std::getline(lines, line);) names.insert(line.substr(line.find(':')));
    return names;
  };
  const auto before = listed();
  EXPECT_EQ(before.size(), 4U);
  expect_done(grus("enable"), "Grus is enabled");
  EXPECT_EQ(listed(), before);
  expect_done(grus("disable"), "Grus is disabled");
  EXPECT_EQ(listed(), before);
}

TEST_F(Enable, HidesADriverThatWasInstalledLater) {
  expect_done(grus("enable"), "Grus is enabled");
  add_fake();
  expect_done(grus("enable"), "fake.icd");
  EXPECT_EQ(names(), (Names{"fake.icd.grus", "grus.icd"}));
  expect_devices(kFakeDevice, "GRUS");
}

TEST_F(Enable, TakesTheNewerFileOfADriverThatWasUpgraded) {
  add_vendor("fake.icd", "/old/libdriver.so");
  expect_done(grus("enable"), "Grus is enabled");
  add_fake();
  expect_done(grus("enable"), "in place of the older one");
  EXPECT_EQ(names(), (Names{"fake.icd.grus", "grus.icd"}));
  expect_devices(kFakeDevice, "GRUS");
  add_fake();
  expect_done(grus("disable"), "a newer fake.icd is there");
  EXPECT_EQ(names(), (Names{"fake.icd"}));
  expect_devices(kFakeDevice, "FAKE");
}

TEST_F(Enable, RefusesAFileInPlaceOfAFolder) {
  fs::remove_all(vendors());
  write(vendors(), "");
  expect_refused(grus("enable"), 1, "Not a directory");
}

}  // namespace
}  // namespace grus::test
