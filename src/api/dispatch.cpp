// The table that ICD loaders call through.
#include "api/dispatch.hpp"

#include "api/entry_point.hpp"

namespace grus {
namespace {

// For slots whose extensions aren't offered. All of them return a code or a handle, which fits a register, and none can
// be reached by a program that asks before it calls.
std::intptr_t CL_API_CALL unsupported() noexcept { return CL_INVALID_OPERATION; }
void* CL_API_CALL unsupported_create() noexcept { return nullptr; }

cl_icd_dispatch make_table() {
  cl_icd_dispatch table{};
#define GRUS_CALL(name, since, family, kind) \
  table.name = EntryPoint<Call::name, &api::name, decltype(cl_icd_dispatch::name)>::call;
#include "api/calls.inc"
#undef GRUS_CALL
  const auto fill = [](auto& slot, std::string_view name) {
    const bool creates = name.starts_with("clCreate") && name != "clCreateSubDevicesEXT";
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(
        creates ? reinterpret_cast<void*>(&unsupported_create) : reinterpret_cast<void*>(&unsupported));
  };
#define GRUS_UNSUPPORTED(name) fill(table.name, #name);
#include "api/unsupported.inc"
#undef GRUS_UNSUPPORTED
  table.clGetKernelSubGroupInfoKHR = table.clGetKernelSubGroupInfo;
  return table;
}

}  // namespace

const cl_icd_dispatch& dispatch_table() {
  static const cl_icd_dispatch table = make_table();
  return table;
}

}  // namespace grus
