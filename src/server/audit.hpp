// Who came, who was turned away, and what each session was: a line of JSON per event, in a file or in the log.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "channel/descriptor.hpp"

namespace grus::server {

class Audit {
 public:
  // Without a file the lines go to the log, as information. Throws std::runtime_error if it can't be written.
  explicit Audit(const std::string& file);
  void note(const char* event, const nlohmann::ordered_json& details) const;

 private:
  const std::string path_;
  channel::Descriptor file_;
};

}  // namespace grus::server
