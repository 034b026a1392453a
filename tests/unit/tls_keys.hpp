// Keys for servers and clients on this host, made by the build's own `grus keys` when a test needs them first.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "channel/keys.hpp"

namespace grus::channel {

class TestKeys {
 public:
  static std::shared_ptr<const Keys> of(Keys::Side side) {
    static const TestKeys made;
    return side == Keys::Side::server ? made.server_ : made.client_;
  }

 private:
  TestKeys() {
    std::string folder = std::filesystem::temp_directory_path() / "grus-tls-XXXXXX";
    if (!mkdtemp(folder.data())) throw std::runtime_error{folder};
    const std::string grus = std::string{std::getenv("GRUS_BUILD")} + "/bin/grus";
    const std::string command = grus + " keys " + folder + " --host 127.0.0.1 > " + folder + "/said";
    if (std::system(command.c_str()) == 0) {
      server_ = std::make_shared<Keys>(Keys::Side::server, folder);
      client_ = std::make_shared<Keys>(Keys::Side::client, folder);
    }
    std::filesystem::remove_all(folder);
    if (!client_) throw std::runtime_error{command};
  }

  std::shared_ptr<const Keys> server_;
  std::shared_ptr<const Keys> client_;
};

}  // namespace grus::channel
