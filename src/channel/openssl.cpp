#include "channel/openssl.hpp"

#include <dlfcn.h>

#include "base/log.hpp"
#include "base/sanitizer.hpp"
#include "channel/stream.hpp"

namespace grus::channel {
namespace {

#define GRUS_TEXT_OF(number) #number
#define GRUS_TEXT(number) GRUS_TEXT_OF(number)
constexpr const char* kLibrary = "libssl.so." GRUS_TEXT(OPENSSL_VERSION_MAJOR);

OpenSsl load() {
  // A program's functions of the same names must not be called instead.
  constexpr int kOwnFirst = sanitizer::kIsOn ? 0 : RTLD_DEEPBIND;
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | kOwnFirst);
  if (!library)
    throw Lost{fmt::format("TLS needs OpenSSL {}: {}", OPENSSL_VERSION_MAJOR, dlerror()), Lost::How::refused};
  OpenSsl loaded{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) throw Lost{fmt::format("{} has no {}: update it", kLibrary, name), Lost::How::refused};
  };
#define GRUS_FIND(name) find(loaded.name, #name);
  GRUS_OPENSSL_FUNCTIONS(GRUS_FIND)
#undef GRUS_FIND
  loaded.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);  // programs call OpenCL at exit
  return loaded;
}

}  // namespace

const OpenSsl& openssl() {
  static const OpenSsl loaded = load();
  return loaded;
}

std::string openssl_error() {
  const char* const reason = openssl().ERR_reason_error_string(openssl().ERR_peek_last_error());
  return reason ? reason : "no reason is known";
}

}  // namespace grus::channel
