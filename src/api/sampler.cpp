// Entry points: samplers.
#include <algorithm>

#include "api/answer.hpp"
#include "api/call.hpp"
#include "api/check.hpp"

namespace grus::api {
namespace {

bool is_addressing(cl_sampler_properties mode) { return mode >= CL_ADDRESS_NONE && mode <= CL_ADDRESS_MIRRORED_REPEAT; }
bool is_filter(cl_sampler_properties mode) { return mode == CL_FILTER_NEAREST || mode == CL_FILTER_LINEAR; }

Result<cl_sampler> create(Context& context, cl_bool normalized, cl_addressing_mode addressing, cl_filter_mode filter,
                          std::vector<cl_sampler_properties> properties) {
  if (std::none_of(context.devices.begin(), context.devices.end(),
                   [](const auto& device) { return device->limits.images; })) {
    return Failure{CL_INVALID_OPERATION};
  }
  auto sampler = Ref<Sampler>::adopt(slab<Sampler>().create(context));
  sampler->normalized = normalized;
  sampler->addressing = addressing;
  sampler->filter = filter;
  sampler->properties = std::move(properties);
  const cl_int code = executor_of(context).create_sampler(
      {sampler->id(), context.id(), normalized, addressing, filter, sampler->properties});
  if (code != CL_SUCCESS) return Failure{code};
  sampler->created = true;
  return reinterpret_cast<cl_sampler>(sampler.hand_out());
}

}  // namespace

Result<cl_sampler> clCreateSampler(cl_context handle, cl_bool normalized, cl_addressing_mode addressing,
                                   cl_filter_mode filter) {
  Context* context = live<Context>(handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  if (normalized > CL_TRUE || !is_addressing(addressing) || !is_filter(filter)) return Failure{CL_INVALID_VALUE};
  return create(*context, normalized, addressing, filter, {});
}

Result<cl_sampler> clCreateSamplerWithProperties(cl_context handle, const cl_sampler_properties* list) {
  Context* context = live<Context>(handle);
  if (!context) return Failure{CL_INVALID_CONTEXT};
  cl_bool normalized = CL_TRUE;
  cl_addressing_mode addressing = CL_ADDRESS_CLAMP;
  cl_filter_mode filter = CL_FILTER_NEAREST;
  std::vector<cl_sampler_properties> seen;
  const cl_sampler_properties* end = list;
  for (; end && *end != 0; end += 2) {
    if (std::find(seen.begin(), seen.end(), end[0]) != seen.end()) return Failure{CL_INVALID_VALUE};
    seen.push_back(end[0]);
    switch (end[0]) {
      case CL_SAMPLER_NORMALIZED_COORDS:
        if (end[1] > CL_TRUE) return Failure{CL_INVALID_VALUE};
        normalized = static_cast<cl_bool>(end[1]);
        break;
      case CL_SAMPLER_ADDRESSING_MODE:
        if (!is_addressing(end[1])) return Failure{CL_INVALID_VALUE};
        addressing = static_cast<cl_addressing_mode>(end[1]);
        break;
      case CL_SAMPLER_FILTER_MODE:
        if (!is_filter(end[1])) return Failure{CL_INVALID_VALUE};
        filter = static_cast<cl_filter_mode>(end[1]);
        break;
      default:
        return Failure{CL_INVALID_VALUE};
    }
  }
  std::vector<cl_sampler_properties> properties;
  if (list) properties.assign(list, end + 1);
  return create(*context, normalized, addressing, filter, std::move(properties));
}

cl_int clRetainSampler(cl_sampler handle) { return retain<Sampler>(handle, CL_INVALID_SAMPLER); }
cl_int clReleaseSampler(cl_sampler handle) { return release_handle<Sampler>(handle, CL_INVALID_SAMPLER); }

cl_int clGetSamplerInfo(cl_sampler handle, cl_sampler_info query, std::size_t size, void* value,
                        std::size_t* size_ret) {
  Sampler* sampler = live<Sampler>(handle);
  if (!sampler) return CL_INVALID_SAMPLER;
  const Room room{size, value, size_ret};
  switch (query) {
    case CL_SAMPLER_REFERENCE_COUNT:
      return answer(room, cl_uint{sampler->program_references()});
    case CL_SAMPLER_CONTEXT:
      return answer(room, reinterpret_cast<cl_context>(sampler->context.get()));
    case CL_SAMPLER_NORMALIZED_COORDS:
      return answer(room, sampler->normalized);
    case CL_SAMPLER_ADDRESSING_MODE:
      return answer(room, sampler->addressing);
    case CL_SAMPLER_FILTER_MODE:
      return answer(room, sampler->filter);
    case CL_SAMPLER_PROPERTIES:
      return answer(room, sampler->properties);
    default:
      return CL_INVALID_VALUE;
  }
}

}  // namespace grus::api
