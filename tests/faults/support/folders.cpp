#include "faults/support/folders.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace grus::test {
namespace fs = std::filesystem;
namespace {

// Kernels are compiled once for all the tests of a program, not for each of its processes.
const fs::path& kernel_cache() {
  static const struct Cache {
    Cache() {
      std::string name = fs::temp_directory_path() / "grus-faults-kernels-XXXXXX";
      path = mkdtemp(name.data());
    }
    ~Cache() {
      std::error_code error;
      if (getpid() == owner) fs::remove_all(path, error);
    }
    fs::path path;
    pid_t owner = getpid();
  } cache;
  return cache.path;
}

}  // namespace

FaultTest::FaultTest() {
  std::string name = fs::temp_directory_path() / "grus-faults-XXXXXX";
  folder_ = mkdtemp(name.data());
  fs::create_directory(vendors());
  environment_ = {
      {"OCL_ICD_VENDORS", grus_icd_folder()}, {"OPENCL_VENDOR_PATH", grus_icd_folder()}, {"GRUS_VENDORS", vendors()},
      {"XDG_CACHE_HOME", folder_ / "cache"},  {"POCL_CACHE_DIR", kernel_cache()},
  };
}

FaultTest::~FaultTest() {
  std::error_code error;
  fs::remove_all(folder_, error);
}

fs::path FaultTest::grus_icd_folder() { return GRUS_ICD_FOLDER; }
fs::path FaultTest::grus_library() { return GRUS_LIBRARY; }
fs::path FaultTest::grus_command() { return GRUS_COMMAND; }
fs::path FaultTest::fake_vendor() { return FAKE_VENDOR_LIBRARY; }

void FaultTest::write(const fs::path& file, const std::string& text) const {
  std::ofstream{file, std::ios::trunc} << text;
}

std::string FaultTest::read(const fs::path& file) const {
  std::ostringstream text;
  text << std::ifstream{file}.rdbuf();
  return text.str();
}

void FaultTest::add_vendor(const std::string& name, const std::string& library) const {
  write(vendors() / name, library + "\n");
}

void FaultTest::add_pocl() const {
  for (const char* file : {"/etc/OpenCL/vendors/pocl.icd", "/etc/OpenCL/vendors/pocl.icd.grus"}) {
    if (fs::exists(file)) return write(vendors() / "pocl.icd", read(file));
  }
  FAIL() << "PoCL is missing: apt-get install pocl-opencl-icd";
}

void FaultTest::apply_environment() const {
  for (const char* name : {"OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES", "GRUS_VENDORS", "GRUS_REPORT",
                           "GRUS_LOG", "GRUS_PRESENT_AS", "FAKE_VENDOR"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : environment_) setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
}

Ended FaultTest::run(const std::function<void()>& body, std::chrono::milliseconds limit) const {
  return in_child(
      [&] {
        apply_environment();
        body();
      },
      limit);
}

Ended FaultTest::run(const std::vector<std::string>& command) const {
  return in_child([&] {
    apply_environment();
    become(command);
  });
}

}  // namespace grus::test
