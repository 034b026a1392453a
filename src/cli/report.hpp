// What libgrus.so says at the end of each process (GRUS_REPORT): one JSON object per line, as a program may fork.
#pragma once

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

namespace grus::cli {

using Reports = std::vector<nlohmann::ordered_json>;

// Of processes that made OpenCL calls.
Reports read_reports(const std::filesystem::path& file);

void print_reports(const Reports& reports, std::FILE* out);

}  // namespace grus::cli
