// What Grus offers of what vendors have: extensions from an allow-list, and no feature that can't be moved.
#pragma once

#include <CL/cl.h>

#include <string>
#include <string_view>
#include <vector>

namespace grus {

bool is_offered(std::string_view extension);
std::string offered_extensions(std::string_view all);
std::vector<cl_name_version> offered_extensions(const std::vector<cl_name_version>& all);

// Features of OpenCL C that are not offered, by the name of their macro.
bool is_hidden_language_feature(std::string_view macro);

// Queries whose answer says that an optional feature is missing: the size of the answer in bytes, 0 if it is no such
// query.
std::size_t hidden_feature_answer_size(cl_device_info query);

// What is hidden, and why: for people (`grus info`).
struct HiddenFeature {
  const char* what;
  const char* why;
};
const std::vector<HiddenFeature>& hidden_features();

// GRUS_PRESENT_AS=gpu|cpu|accelerator: what devices claim to be; 0 if they tell the truth.
cl_device_type presented_type();

}  // namespace grus
