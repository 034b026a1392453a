// Unloading a vendor's driver and loading it again, in one process: the library, its threads and the descriptors that
// it left open are gone; a driver that can't be unloaded is said to be one, and stays usable.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "executor/process_facts.hpp"
#include "executor/vendor.hpp"
#include "faults/support/folders.hpp"
#include "faults/support/vendor_use.hpp"

namespace grus::test {
namespace fs = std::filesystem;
namespace {

constexpr int kSkip = 77;
constexpr const char* kDeviceFile = "/dev/nvidia-fake";

// The fake driver opens a file where a driver's device would be. It is there for this process only.
void make_device_file() {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(kSkip);
  mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  if (mount("grus-faults", "/dev", "tmpfs", 0, nullptr) != 0) _exit(kSkip);
  for (const char* file : {kDeviceFile, "/dev/null"}) close(open(file, O_WRONLY | O_CREAT, 0600));
}

bool is_mapped(std::string_view part_of_name) {
  const auto libraries = mapped_libraries();
  return std::any_of(libraries.begin(), libraries.end(),
                     [&](const std::string& library) { return library.find(part_of_name) != std::string::npos; });
}

class Unload : public FaultTest {
 protected:
  void expect_well(const std::function<void()>& body) const {
    const Ended ended = run(body);
    if (ended.exited_with(kSkip)) GTEST_SKIP() << "no mount namespaces here";
    EXPECT_TRUE(ended.exited_with(0)) << ended;
    EXPECT_EQ(ended.errors, "");
  }
  static std::unique_ptr<Vendor> load(const std::string& library) {
    auto vendor = Vendor::load({library, {}});
    require(vendor != nullptr, "the driver loads");
    return vendor;
  }
  static void use(const Vendor& vendor) {
    const std::string problem = use_vendor(vendor);
    require(problem.empty(), problem);
  }
  static std::string pocl() { return find_vendor_libraries("/etc/OpenCL/vendors/pocl.icd").at(0).path; }
};

TEST_F(Unload, TakesLibraryThreadsAndDescriptorsAway) {
  misbehave(std::string{"device="} + kDeviceFile);
  expect_well([] {
    make_device_file();
    // Counted by a thread, as the thread sanitizer starts one of its own beside the first.
    int threads = 0;
    std::thread{[&] { threads = thread_count() - 1; }}.join();
    for (int time = 0; time < 3; ++time) {
      auto vendor = load(fake_vendor());
      require(is_mapped("libfake_vendor.so"), "it is mapped");
      use(*vendor);
      use(*vendor);
      require(open_device_files().size() == 2, "each first context has opened the file");
      const Vendor::Unloaded unloaded = vendor->unload();
      require(unloaded.gone, "gone: " + unloaded.why_not);
      require(unloaded.why_not.empty(), unloaded.why_not);
      require(unloaded.closed_descriptors == 2, "the descriptors that it left open");
      require(open_device_files().empty(), "none is left");
      require(!is_mapped("libfake_vendor.so"), "nor the library");
      // Nor its threads: one that was joined may be seen a moment longer, but not until the test's time is up.
      while (thread_count() != threads) std::this_thread::yield();
    }
  });
}

TEST_F(Unload, LeavesDescriptorsAloneThatWereThereBefore) {
  misbehave(std::string{"device="} + kDeviceFile);
  expect_well([] {
    make_device_file();
    const int before = open(kDeviceFile, O_RDONLY);
    const int other = open("/dev/null", O_RDONLY);
    auto vendor = load(fake_vendor());
    use(*vendor);
    const int later = open("/dev/null", O_RDONLY);
    const Vendor::Unloaded unloaded = vendor->unload();
    require(unloaded.gone && unloaded.closed_descriptors == 1, "only the driver's own is closed");
    for (const int descriptor : {before, other, later}) require(fcntl(descriptor, F_GETFD) >= 0, "this one stays");
  });
}

// NVIDIA's driver leaves libraries of its own behind. Those in the same folder that the program has loaded stay.
TEST_F(Unload, TakesLibrariesAwayThatNvidiasDriverLeavesBehind) {
  const auto copy = [&](const char* name) {
    fs::copy_file(fake_vendor(), folder() / name);
    return (folder() / name).string();
  };
  const std::string driver = copy("libnvidia-driver.so.1");
  const std::string compiler = copy("libnvidia-compiler.so.1");
  const std::string programs = copy("libprograms.so.1");
  misbehave("library=" + compiler);
  expect_well([&] {
    for (int time = 0; time < 3; ++time) {
      auto vendor = load(driver);
      void* loaded = dlopen(programs.c_str(), RTLD_NOW | RTLD_LOCAL);
      use(*vendor);
      require(is_mapped(compiler), "the driver has loaded one more");
      const Vendor::Unloaded unloaded = vendor->unload();
      require(unloaded.gone, unloaded.why_not);
      require(!is_mapped("libnvidia"), "both are gone");
      require(is_mapped(programs), "the program's isn't");
      dlclose(loaded);
    }
  });
}

// Descriptors of the same devices may be theirs.
TEST_F(Unload, SaysSoWhileAnotherLibraryOfTheVendorIsInUse) {
  misbehave(std::string{"device="} + kDeviceFile);
  fs::copy_file(fake_vendor(), folder() / "libnvidia-other.so.1");
  const std::string other = folder() / "libnvidia-other.so.1";
  for (const bool before : {true, false}) {
    expect_well([&] {
      make_device_file();
      if (before) require(dlopen(other.c_str(), RTLD_NOW | RTLD_LOCAL), "the other library loads");
      auto vendor = load(fake_vendor());
      if (!before) require(dlopen(other.c_str(), RTLD_NOW | RTLD_LOCAL), "the other library loads");
      use(*vendor);
      const Vendor::Unloaded unloaded = vendor->unload();
      require(!unloaded.gone, "not all is gone");
      require(unloaded.why_not.find("libnvidia-other.so.1 is still in use") != std::string::npos, unloaded.why_not);
      require(unloaded.closed_descriptors == 0 && open_device_files().size() == 1, "no descriptor was touched");
    });
  }
}

TEST_F(Unload, SaysSoWhileSomebodyElseHasTheLibrary) {
  expect_well([] {
    void* somebody = dlopen(fake_vendor().c_str(), RTLD_NOW | RTLD_LOCAL);
    auto vendor = load(fake_vendor());
    use(*vendor);
    const Vendor::Unloaded unloaded = vendor->unload();
    require(!unloaded.gone && unloaded.why_not.find("stays loaded") != std::string::npos, unloaded.why_not);
    dlclose(somebody);
    require(!is_mapped("libfake_vendor.so"), "that was the last");
    use(*load(fake_vendor()));
  });
}

TEST_F(Unload, SaysThatPoclCannotBeUnloadedAndItStaysUsable) {
  expect_well([] {
    for (int time = 0; time < 2; ++time) {
      auto vendor = load(pocl());
      use(*vendor);
      require(vendor->describe_unloading().starts_with("no: "), vendor->describe_unloading());
      const Vendor::Unloaded unloaded = vendor->unload();
      require(!unloaded.gone, "not gone");
      require(unloaded.why_not.find("libpocl") != std::string::npos, unloaded.why_not);
      require(unloaded.why_not.find("can't be unloaded") != std::string::npos, unloaded.why_not);
    }
  });
}

TEST_F(Unload, DoesNotDisturbOtherDrivers) {
  expect_well([] {
    auto stays = load(pocl());
    use(*stays);
    for (int time = 0; time < 3; ++time) {
      auto goes = load(fake_vendor());
      use(*goes);
      use(*stays);
      require(goes->unload().gone, "gone");
      use(*stays);
    }
  });
}

}  // namespace
}  // namespace grus::test
