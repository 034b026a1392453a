// What a program may rely on about its device, fact by fact. A session can only move to a device that has all of it; a
// profile that several devices share, told to the program instead of what its device has, lets it move among them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "objects/facts.hpp"

namespace grus {

class Profile {
 public:
  using Ask = std::function<Result<Bytes>(cl_device_info)>;
  using AskFormats = std::function<Result<Bytes>(cl_mem_flags, cl_mem_object_type)>;

  static Profile of_device(const Ask& ask);
  // Of a context on it.
  void add_image_formats(const AskFormats& ask);
  // The file's lines are a fact's name and its value. Throws std::runtime_error, saying what is wrong with it.
  static Profile read(const std::string& path);
  std::string text() const;

  // What both have.
  Profile in_common_with(const Profile& other) const;
  // What a device lacks that has the facts of `there`, each in words.
  std::vector<std::string> missing(const Profile& there) const;
  // Whether it has this fact; a file may leave some out.
  bool tells(cl_device_info query) const { return values_.contains(query); }
  // What the program is to be told instead of a device's own answer.
  Result<Bytes> instead_of(cl_device_info query, Result<Bytes> answer) const;
  Result<Bytes> formats_instead_of(cl_mem_flags flags, cl_mem_object_type type, Result<Bytes> answer) const;

 private:
  const std::vector<std::string>* list(const std::string& name) const;

  std::map<cl_device_info, std::vector<std::uint64_t>> values_;
  std::map<std::string, std::vector<std::string>> lists_;  // of words, by the fact's name
};

// What a list of image formats lacks that another has, each in words.
std::vector<std::string> missing_formats(cl_mem_flags flags, cl_mem_object_type type, const Bytes& told,
                                         const Result<Bytes>& there);

// GRUS_PROFILE, if it names one; complains once if it can't be read.
const std::optional<Profile>& profile_to_tell();

}  // namespace grus
