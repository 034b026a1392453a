// A private vendors' folder, a private cache, and the environment that makes programs use them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "faults/support/process.hpp"

namespace grus::test {

// Programs that aren't built with sanitizers can't load libraries that are.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kOtherProgramsCanLoadGrus = false;
#else
inline constexpr bool kOtherProgramsCanLoadGrus = true;
#endif

class FaultTest : public ::testing::Test {
 protected:
  FaultTest();
  ~FaultTest() override;

  // What is built: the folder with only grus.icd in it, libgrus.so, the command, the fake driver.
  static std::filesystem::path grus_icd_folder();
  static std::filesystem::path grus_library();
  static std::filesystem::path grus_command();
  static std::filesystem::path fake_vendor();

  const std::filesystem::path& folder() const { return folder_; }  // gone after the test
  std::filesystem::path vendors() const { return folder_ / "vendors"; }
  void write(const std::filesystem::path& file, const std::string& text) const;
  std::string read(const std::filesystem::path& file) const;
  void add_vendor(const std::string& name, const std::string& library) const;  // an ICD file
  void add_pocl() const;
  void add_fake() const { add_vendor("fake.icd", fake_vendor()); }

  // Of the processes that follow. At first the loader sees only Grus, and Grus sees the private folder.
  void set(const std::string& name, const std::string& value) { environment_[name] = value; }
  void unset(const std::string& name) { environment_.erase(name); }
  void misbehave(const std::string& how) { set("FAKE_VENDOR", how); }

  Ended run(const std::function<void()>& body, std::chrono::milliseconds limit = kLongEnough) const;
  Ended run(const std::vector<std::string>& command) const;

 private:
  void apply_environment() const;

  std::filesystem::path folder_;
  std::map<std::string, std::string> environment_;
};

}  // namespace grus::test
