// Profiles: what devices have in common, and what one lacks.
#include "objects/profile.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace grus::test {
namespace {

Bytes text_bytes(const std::string& text) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.c_str());
  return {bytes, bytes + text.size() + 1};
}

template <typename T>
Bytes list_bytes(const std::vector<T>& list) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(list.data());
  return {bytes, bytes + list.size() * sizeof(T)};
}

struct FakeDevice {
  cl_device_exec_capabilities execution = CL_EXEC_KERNEL;
  std::vector<cl_version> languages{};  // none: it is from before OpenCL 3.0
  std::string language = "OpenCL C 1.2 fake";
  std::vector<cl_image_format> formats{};

  Result<Bytes> answer(cl_device_info query) const {
    switch (query) {
      case CL_DEVICE_EXECUTION_CAPABILITIES:
        return to_bytes(execution);
      case CL_DEVICE_OPENCL_C_VERSION:
        return text_bytes(language);
      case CL_DEVICE_OPENCL_C_ALL_VERSIONS: {
        std::vector<cl_name_version> all;
        for (const cl_version version : languages) all.push_back({version, "OpenCL C"});
        return all.empty() ? Result<Bytes>{Failure{CL_INVALID_VALUE}} : list_bytes(all);
      }
      default:
        return Failure{CL_INVALID_VALUE};
    }
  }
  Profile profile() const {
    Profile made = Profile::of_device([this](cl_device_info query) { return answer(query); });
    made.add_image_formats([this](cl_mem_flags, cl_mem_object_type) { return list_bytes(formats); });
    return made;
  }
};

constexpr cl_image_format kBytes{CL_RGBA, CL_UNORM_INT8};
constexpr cl_image_format kFloats{CL_R, CL_FLOAT};
constexpr cl_image_format kUnheardOf{0x7777, CL_FLOAT};

TEST(ProfileTest, NativeKernels) {
  const FakeDevice with{.execution = CL_EXEC_KERNEL | CL_EXEC_NATIVE_KERNEL};
  const FakeDevice without;
  EXPECT_EQ(with.profile().missing(without.profile()).size(), 1U);
  EXPECT_TRUE(without.profile().missing(with.profile()).empty());
  const Profile both = with.profile().in_common_with(without.profile());
  EXPECT_TRUE(both.missing(without.profile()).empty());
  const auto told = both.instead_of(CL_DEVICE_EXECUTION_CAPABILITIES, with.answer(CL_DEVICE_EXECUTION_CAPABILITIES));
  EXPECT_EQ(from_bytes<cl_device_exec_capabilities>(*told), cl_device_exec_capabilities{CL_EXEC_KERNEL});
}

TEST(ProfileTest, VersionsOfTheLanguage) {
  const FakeDevice now{.languages = {CL_MAKE_VERSION(1, 0, 0), CL_MAKE_VERSION(1, 1, 0), CL_MAKE_VERSION(1, 2, 0),
                                     CL_MAKE_VERSION(3, 0, 0)}};
  const FakeDevice before{.language = "OpenCL C 1.1 fake"};
  const auto reasons = now.profile().missing(before.profile());
  ASSERT_EQ(reasons.size(), 2U);
  EXPECT_EQ(reasons[0], "OpenCL C 1.2 is missing there");
  EXPECT_TRUE(before.profile().missing(now.profile()).empty());
  const Profile both = now.profile().in_common_with(before.profile());
  EXPECT_TRUE(both.missing(before.profile()).empty());
  EXPECT_EQ(text_from_bytes(*both.instead_of(CL_DEVICE_OPENCL_C_VERSION, now.answer(CL_DEVICE_OPENCL_C_VERSION))),
            "OpenCL C 1.1 fake");
  const auto all = both.instead_of(CL_DEVICE_OPENCL_C_ALL_VERSIONS, now.answer(CL_DEVICE_OPENCL_C_ALL_VERSIONS));
  EXPECT_EQ(list_from_bytes<cl_name_version>(*all).size(), 2U);
}

TEST(ProfileTest, ImageFormats) {
  const FakeDevice many{.formats = {kBytes, kFloats, kUnheardOf}};
  const FakeDevice one{.formats = {kFloats}};
  EXPECT_FALSE(many.profile().missing(one.profile()).empty());
  EXPECT_TRUE(one.profile().missing(many.profile()).empty());
  const Profile both = many.profile().in_common_with(one.profile());
  const auto told = both.formats_instead_of(CL_MEM_READ_ONLY | CL_MEM_ALLOC_HOST_PTR, CL_MEM_OBJECT_IMAGE3D,
                                            list_bytes(many.formats));
  const auto formats = list_from_bytes<cl_image_format>(*told);
  ASSERT_EQ(formats.size(), 1U);
  EXPECT_EQ(formats[0].image_channel_order, cl_channel_order{CL_R});
  const auto reasons = missing_formats(CL_MEM_WRITE_ONLY, CL_MEM_OBJECT_IMAGE2D, list_bytes(many.formats),
                                       Result<Bytes>{list_bytes(one.formats)});
  ASSERT_EQ(reasons.size(), 2U);
  EXPECT_EQ(reasons[0], "IMAGE2D_FORMATS_WRITE_ONLY RGBA/UNORM_INT8 is missing there");
}

TEST(ProfileTest, AFileHasAllOfIt) {
  const FakeDevice device{.execution = CL_EXEC_KERNEL | CL_EXEC_NATIVE_KERNEL,
                          .languages = {CL_MAKE_VERSION(1, 2, 0)},
                          .formats = {kBytes, kUnheardOf}};
  const std::string path = ::testing::TempDir() + "grus-profile-test";
  std::ofstream{path} << device.profile().text();
  EXPECT_EQ(Profile::read(path).text(), device.profile().text());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace grus::test
