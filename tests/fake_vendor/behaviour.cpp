#include "behaviour.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace fake {
namespace {

// A copy with no destructor: entry points are called until the very end of the process.
char g_orders[1024];

[[gnu::constructor(101)]] void read_orders() {
  const char* variable = std::getenv("FAKE_VENDOR");
  if (variable) std::strncpy(g_orders, variable, sizeof g_orders - 1);
}

// What follows `what` in the list: "" or "=value".
std::optional<std::string_view> find(std::string_view what) {
  for (std::string_view rest{g_orders}; !rest.empty();) {
    const std::string_view order = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(order.size() + 1, rest.size()));
    if (order.starts_with(what) && (order.size() == what.size() || order[what.size()] == '=')) {
      return order.substr(what.size());
    }
  }
  return {};
}

[[gnu::constructor]] void load() {
  if (const auto descriptor = value_of("say")) {
    if (write(std::atoi(descriptor->c_str()), "l", 1) != 1) std::abort();
  }
  misbehave_in("load");
}

}  // namespace

bool is_told(const std::string& what) { return find(what).has_value(); }

std::optional<std::string> value_of(const std::string& what) {
  const auto found = find(what);
  if (!found || found->empty()) return {};
  return std::string{found->substr(1)};
}

cl_int misbehave_in(const char* place) {
  if (!*g_orders) return CL_SUCCESS;
  const std::string where{place};
  if (is_told("crash:" + where)) raise(SIGSEGV);
  if (is_told("abort:" + where)) std::abort();
  while (is_told("hang:" + where)) pause();
  if (is_told("exit:" + where)) std::exit(0);
  const auto code = value_of("fail:" + where);
  return code ? std::atoi(code->c_str()) : CL_SUCCESS;
}

}  // namespace fake
