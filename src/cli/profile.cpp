#include "objects/profile.hpp"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/problem.hpp"
#include "executor/starting.hpp"

namespace grus::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  grus profile make local tcp:gpu2:7070 -o both.profile     what the devices here and there have in common
  grus profile make local --device PoCL --device rusticl    of these only
  grus run --profile both.profile -- ./simulation           and then: grus move

The file's lines are a fact's name and its value; they may be edited.)";

struct Options {
  std::vector<std::string> places;
  std::vector<std::string> devices;
  std::string output;
};

std::string text_of(const Result<Bytes>& bytes) { return bytes ? text_from_bytes(*bytes) : std::string{}; }

int make(const Options& options) {
  std::optional<Profile> common;
  std::uint64_t next = 1;
  for (const auto& place : options.places) {
    const auto executor = open_executor(place);
    const auto platforms = executor->platforms();
    for (std::uint32_t platform = 0; platform < platforms.size(); ++platform) {
      const auto count = executor->device_count(platform);
      for (cl_uint index = 0; count && index < *count; ++index) {
        const ObjectId id{next, static_cast<std::uint32_t>(next)};
        ++next;
        executor->name_device(platform, index, id);
        const std::string name = text_of(executor->device_info(id, CL_DEVICE_NAME));
        const auto is_named = [&](const std::string& part) {
          return name.find(part) != std::string::npos || platforms[platform].name.find(part) != std::string::npos;
        };
        if (!options.devices.empty() && std::none_of(options.devices.begin(), options.devices.end(), is_named))
          continue;
        fmt::print(stderr, "{}: {} / {}\n", place, platforms[platform].name, name);
        auto profile = Profile::of_device([&](cl_device_info query) { return executor->device_info(id, query); });
        if (executor->create_context(id, {&id, 1}, platform, {}, {}) == CL_SUCCESS) {
          profile.add_image_formats([&](cl_mem_flags flags, cl_mem_object_type type) {
            return executor->supported_formats(id, flags, type);
          });
          executor->free(ObjectType::context, id);
        }
        common = common ? common->in_common_with(profile) : profile;
      }
    }
  }
  if (!common) throw Problem{"there is no such device"};
  if (options.output.empty()) {
    std::cout << common->text();
    return kDone;
  }
  std::ofstream file{options.output};
  file << common->text();
  if (!file.flush()) throw Problem{fmt::format("{}: can't be written", options.output)};
  return kDone;
}

}  // namespace

Subcommand add_profile(CLI::App& grus) {
  auto options = std::make_shared<Options>();
  CLI::App* app = grus.add_subcommand("profile", "What several devices have in common, to tell a program of no more");
  app->require_subcommand(1);
  app->footer(kExamples);
  CLI::App* made = app->add_subcommand("make", "Write the largest profile that all of the devices have");
  made->add_option("WHERE", options->places, "`local`, unix:PATH or tcp:HOST:PORT, again for more")->required();
  made->add_option("--device", options->devices,
                   "Only devices with this in their or their platform's name, again for more")
      ->type_name("NAME");
  made->add_option("-o,--output", options->output, "The file; else standard output")->type_name("FILE");
  return {app, [options] { return make(*options); }};
}

}  // namespace grus::cli
