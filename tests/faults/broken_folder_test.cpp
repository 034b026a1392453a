// Vendors' folders that are empty, missing or full of nonsense: no crash, no hang, and a message that says what to do.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "faults/support/folders.hpp"
#include "faults/support/opencl.hpp"

namespace grus::test {
namespace fs = std::filesystem;
namespace {

void find_no_platform() {
  cl_uint count = 7;
  require(cl().clGetPlatformIDs(0, nullptr, &count) == CL_PLATFORM_NOT_FOUND_KHR, "CL_PLATFORM_NOT_FOUND_KHR");
  cl_int code = CL_SUCCESS;
  cl_context context = cl().clCreateContextFromType(nullptr, CL_DEVICE_TYPE_ALL, nullptr, nullptr, &code);
  require(!context && code != CL_SUCCESS, "no context either");
}

void find_the_fake_once() {
  require(list_devices() == "Grus Fake: Grus Fake device\n", "one device, shown once:\n" + list_devices());
  Workload{kFake}.use();
}

class BrokenFolder : public FaultTest {
 protected:
  void expect_none(std::string_view message) const {
    const Ended ended = run(find_no_platform);
    EXPECT_TRUE(ended.exited_with(0)) << ended;
    EXPECT_TRUE(ended.said(message)) << ended;
  }
  void expect_the_fake(std::string_view message) const {
    const Ended ended = run(find_the_fake_once);
    EXPECT_TRUE(ended.exited_with(0)) << ended;
    EXPECT_TRUE(ended.said(message)) << ended;
  }
  void expect_the_fake_quietly() const {
    const Ended ended = run(find_the_fake_once);
    EXPECT_TRUE(ended.exited_with(0)) << ended;
    EXPECT_EQ(ended.errors, "");
  }
};

TEST_F(BrokenFolder, Empty) { expect_none("no .icd file in it; install an OpenCL driver"); }

TEST_F(BrokenFolder, Missing) {
  set("GRUS_VENDORS", folder() / "nowhere");
  expect_none("no such folder; install an OpenCL driver");
}

TEST_F(BrokenFolder, MissingIcdFile) {
  set("GRUS_VENDORS", folder() / "nowhere.icd");
  expect_none("no such file; GRUS_VENDORS or --vendors must name");
}

TEST_F(BrokenFolder, MissingLibrary) {
  set("GRUS_VENDORS", "libnowhere.so.1");
  expect_none("libnowhere.so.1 is left out: libnowhere.so.1: cannot open shared object file");
}

// Each beside a driver that works.
TEST_F(BrokenFolder, IcdFileIsEmpty) {
  add_fake();
  write(vendors() / "broken.icd", "");
  expect_the_fake("broken.icd is left out: the file names no library; reinstall that driver or remove the file");
}

TEST_F(BrokenFolder, IcdFileIsBlank) {
  add_fake();
  write(vendors() / "broken.icd", "  \r\n\n");
  expect_the_fake("broken.icd is left out: the file names no library; reinstall that driver or remove the file");
}

TEST_F(BrokenFolder, IcdFileIsGarbage) {
  add_fake();
  std::string garbage;
  for (int next = 0; next < 100000; ++next) garbage += static_cast<char>(next * 7 % 256);
  write(vendors() / "broken.icd", garbage);
  expect_the_fake("broken.icd is left out: the file names no library");
}

TEST_F(BrokenFolder, IcdFileNamesNoSuchLibrary) {
  add_fake();
  add_vendor("broken.icd", "/nowhere/libdriver.so.1");
  expect_the_fake("/nowhere/libdriver.so.1 (named in " + (vendors() / "broken.icd").string() +
                  ") is left out: /nowhere/libdriver.so.1: cannot open shared object file");
}

TEST_F(BrokenFolder, IcdFileNamesATextFile) {
  add_fake();
  write(folder() / "driver.so", "this is no library\n");
  add_vendor("broken.icd", folder() / "driver.so");
  expect_the_fake("driver.so: ");
}

TEST_F(BrokenFolder, IcdFileNamesAFolder) {
  add_fake();
  add_vendor("broken.icd", folder());
  expect_the_fake("broken.icd) is left out");
}

TEST_F(BrokenFolder, IcdFileNamesALibraryThatIsNoDriver) {
  add_fake();
  add_vendor("broken.icd", "libm.so.6");
  expect_the_fake("libm.so.6 (named in " + (vendors() / "broken.icd").string() +
                  ") is left out: it is no OpenCL driver");
}

TEST_F(BrokenFolder, IcdFileIsAFolder) {
  add_fake();
  fs::create_directory(vendors() / "broken.icd");
  expect_the_fake("broken.icd is left out: the file names no library");
}

TEST_F(BrokenFolder, IcdFileIsAPipe) {
  add_fake();
  ASSERT_EQ(mkfifo((vendors() / "broken.icd").c_str(), 0600), 0);
  expect_the_fake("broken.icd is left out: the file names no library");
}

TEST_F(BrokenFolder, IcdFileIsADanglingLink) {
  add_fake();
  fs::create_symlink("/nowhere/driver.icd", vendors() / "broken.icd");
  expect_the_fake("broken.icd is left out: the file names no library");
}

TEST_F(BrokenFolder, OtherFilesDontMatter) {
  add_fake();
  write(vendors() / "README", "/nowhere/libdriver.so\n");
  write(vendors() / "fake.icd.bak", fake_vendor().string() + "\n");
  write(vendors() / ".grus", "/nowhere/libdriver.so\n");
  expect_the_fake_quietly();
}

TEST_F(BrokenFolder, BlanksAroundTheName) {
  write(vendors() / "fake.icd", fake_vendor().string() + " \t\r\n\r\n");
  expect_the_fake_quietly();
}

TEST_F(BrokenFolder, DriverNamedTwice) {
  add_fake();
  add_vendor("fake-again.icd", fake_vendor());
  fs::create_symlink(fake_vendor(), folder() / "libother.so");
  add_vendor("fake-by-another-name.icd", folder() / "libother.so");
  add_vendor("fake.icd.grus", fake_vendor());
  expect_the_fake_quietly();
}

// Grus never loads itself, by whatever name.
TEST_F(BrokenFolder, GrusItself) {
  add_fake();
  add_vendor("grus.icd", grus_library());
  fs::create_symlink(grus_library(), folder() / "liblink.so");
  add_vendor("link.icd", folder() / "liblink.so");
  expect_the_fake_quietly();
}

TEST_F(BrokenFolder, CopyOfGrus) {
  add_fake();
  fs::copy_file(grus_library(), folder() / "libcopy.so");
  add_vendor("copy.icd", folder() / "libcopy.so");
  expect_the_fake_quietly();
}

TEST_F(BrokenFolder, OnlyGrus) {
  add_vendor("grus.icd", grus_library());
  expect_none("names only Grus itself");
}

// The loader is told to show only Grus, and nobody says where the drivers are: Grus takes the system's.
TEST_F(BrokenFolder, LoaderSeesOnlyGrus) {
  unset("GRUS_VENDORS");
  const Ended ended = run([] { Workload{kPocl}.use(); });
  EXPECT_TRUE(ended.exited_with(0)) << ended;
}

}  // namespace
}  // namespace grus::test
