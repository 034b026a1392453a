// What ICD loaders do with Grus: the rules that they rely on, unloading and loading again, and other drivers beside it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>

#include "faults/support/folders.hpp"
#include "faults/support/opencl.hpp"

namespace grus::test {
namespace fs = std::filesystem;
namespace {

class Loader : public FaultTest {
 protected:
  void expect_well(const std::function<void()>& body) const {
    const Ended ended = run(body);
    EXPECT_TRUE(ended.exited_with(0)) << ended;
    EXPECT_EQ(ended.errors, "");
  }
};

// The table that the first word of every handle points to.
const cl_icd_dispatch* table_of(const void* handle) { return *static_cast<const cl_icd_dispatch* const*>(handle); }

using AddressOf = void*(CL_API_CALL*)(const char*);
using GetPlatforms = cl_int(CL_API_CALL*)(cl_uint, cl_platform_id*, cl_uint*);

// As the Khronos loader loads a driver: dlopen, and two functions.
TEST_F(Loader, FindsWhatTheExtensionPromises) {
  add_fake();
  expect_well([] {
    void* grus = dlopen(grus_library().c_str(), RTLD_NOW);
    require(grus != nullptr, "the library loads");
    const auto address_of = reinterpret_cast<AddressOf>(dlsym(grus, "clGetExtensionFunctionAddress"));
    require(address_of != nullptr, "clGetExtensionFunctionAddress is exported");
    const auto get = reinterpret_cast<GetPlatforms>(address_of("clIcdGetPlatformIDsKHR"));
    require(get != nullptr, "clIcdGetPlatformIDsKHR is found");
    require(address_of("clNoSuchFunction") == nullptr && address_of("") == nullptr, "others aren't");
    cl_uint count = 0;
    require(get(0, nullptr, &count) == CL_SUCCESS && count == 1, "one platform");
    cl_platform_id platform = nullptr;
    require(get(1, &platform, nullptr) == CL_SUCCESS, "and here it is");
    require(get(0, &platform, nullptr) == CL_INVALID_VALUE, "no room");
    require(get(0, nullptr, nullptr) == CL_INVALID_VALUE, "nothing asked");
    char suffix[16] = {};
    require(table_of(platform)->clGetPlatformInfo(platform, CL_PLATFORM_ICD_SUFFIX_KHR, sizeof suffix, suffix,
                                                  nullptr) == CL_SUCCESS &&
                std::strlen(suffix) != 0,
            "CL_PLATFORM_ICD_SUFFIX_KHR");
    std::string extensions(4096, '\0');
    table_of(platform)->clGetPlatformInfo(platform, CL_PLATFORM_EXTENSIONS, extensions.size(), extensions.data(),
                                          nullptr);
    require(extensions.find("cl_khr_icd") != std::string::npos, "cl_khr_icd is among the extensions");
  });
}

TEST_F(Loader, FindsEverySlotOfTheTableFilled) {
  add_fake();
  expect_well([] {
    const cl_icd_dispatch* table = table_of(list_platforms().at(0).platform);
    std::array<void*, sizeof *table / sizeof(void*)> slots;
    std::memcpy(slots.data(), table, sizeof slots);
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      require(slots[slot] != nullptr, "slot " + std::to_string(slot) + " is filled");
      Dl_info info{};
      require(dladdr(slots[slot], &info) != 0 && fs::equivalent(info.dli_fname, grus_library()),
              "and it is Grus's own");
    }
  });
}

TEST_F(Loader, FindsTheTableBehindEveryHandle) {
  add_fake();
  expect_well([] {
    Workload work{kFake};
    const cl_icd_dispatch* table = table_of(work.platform);
    cl_event event = nullptr;
    work.launch(0, nullptr, &event);
    cl_event user = cl().clCreateUserEvent(work.context, nullptr);
    const cl_buffer_region half{0, 128};
    cl_mem part = cl().clCreateSubBuffer(work.buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, nullptr);
    for (const void* handle : std::initializer_list<const void*>{work.device, work.context, work.queue, work.buffer,
                                                                 part, work.program, work.kernel, event, user}) {
      require(handle && table_of(handle) == table, "the same table in the first word");
    }
    cl().clReleaseMemObject(part);
    cl().clReleaseEvent(user);
    cl().clReleaseEvent(event);
    // Handles that were released stay readable: the loader looks before Grus does.
    require(table_of(event) == table && table_of(part) == table, "after their release too");
    require(cl().clReleaseEvent(event) == CL_INVALID_EVENT, "and Grus says what they are");
    require(cl().clReleaseMemObject(part) == CL_INVALID_MEM_OBJECT, "and Grus says what they are");
  });
}

TEST_F(Loader, MayBeUnloadedAfterEverythingWasReleased) {
  add_fake();
  add_pocl();
  expect_well([] {
    for (int time = 0; time < 3; ++time) {
      void* loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
      use_loader(loader);
      Workload{kFake}.use();
      Workload{kPocl}.use();
      dlclose(loader);
    }
  });
}

TEST_F(Loader, MayBeUnloadedThoughNothingWasReleased) {
  add_fake();
  add_pocl();
  expect_well([] {
    for (int time = 0; time < 3; ++time) {
      void* loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
      use_loader(loader);
      for (const char* platform : {kFake, kPocl}) {
        auto* work = new Workload{platform};
        work->warm_up();
        cl_event user = cl().clCreateUserEvent(work->context, nullptr);
        cl_event event = nullptr;
        work->launch(1, &user, &event);
        cl().clSetEventCallback(
            event, CL_COMPLETE, [](cl_event, cl_int, void*) {}, nullptr);
        work->launch_long();
      }
      dlclose(loader);
    }
  });
}

TEST_F(Loader, ShowsGrusAndAnotherDriverSideBySide) {
  add_fake();
  const fs::path both = folder() / "both";
  fs::create_directory(both);
  fs::copy(grus_icd_folder() / "grus.icd", both / "grus.icd");
  fs::copy("/etc/OpenCL/vendors/pocl.icd", both / "pocl.icd");
  set("OCL_ICD_VENDORS", both);
  expect_well([] {
    require(list_platforms().size() == 2, "two platforms:\n" + list_devices());
    Workload mine{kFake};
    Workload other{kPocl};
    for (int time = 0; time < 3; ++time) {
      mine.use();
      other.use();
    }
    require(table_of(mine.platform) != table_of(other.platform), "each with its own functions");
    // Handles of the other driver are as wrong as any.
    cl_int code = CL_SUCCESS;
    require(!table_of(mine.context)->clCreateBuffer(other.context, 0, 64, nullptr, &code) && code == CL_INVALID_CONTEXT,
            "the other driver's context is none of Grus's");
  });
}

TEST_F(Loader, ShowsTheSameDriverThroughGrusAndBesideIt) {
  add_pocl();
  const fs::path both = folder() / "both";
  fs::create_directory(both);
  fs::copy(grus_icd_folder() / "grus.icd", both / "grus.icd");
  fs::copy(vendors() / "pocl.icd", both / "pocl.icd");
  set("OCL_ICD_VENDORS", both);
  expect_well([] {
    const auto platforms = list_platforms();
    require(platforms.size() == 2 && platforms[0].name == platforms[1].name, "PoCL twice:\n" + list_devices());
    std::set<const cl_icd_dispatch*> tables;
    for (const Listed& listed : platforms) tables.insert(table_of(listed.platform));
    require(tables.size() == 2, "once by Grus, once by itself");
    Workload{kPocl}.use();
  });
}

TEST_F(Loader, IsStartedByGrusRun) {
  if (!kOtherProgramsCanLoadGrus) GTEST_SKIP() << "not with sanitizers";
  add_fake();
  add_pocl();
  unset("OCL_ICD_VENDORS");
  unset("OPENCL_VENDOR_PATH");
  unset("GRUS_VENDORS");
  const Ended ended = run({grus_command(), "run", "--vendors", vendors(), "--", "clinfo", "-l"});
  EXPECT_TRUE(ended.exited_with(0)) << ended;
  EXPECT_NE(ended.output.find("Grus Fake device"), std::string::npos) << ended;
  EXPECT_NE(ended.output.find(kPocl), std::string::npos) << ended;
}

}  // namespace
}  // namespace grus::test
