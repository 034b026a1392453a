#pragma once

#include <vector>

#include "objects/context.hpp"

namespace grus {

class Sampler : public Object {
 public:
  explicit Sampler(Context& context_) : context{&context_} {}
  ~Sampler() {
    if (created) context->below.load(std::memory_order_relaxed)->free(ObjectType::sampler, id());
  }

  const Ref<Context> context;
  bool created = false;  // below the seam
  cl_bool normalized = CL_TRUE;
  cl_addressing_mode addressing = CL_ADDRESS_CLAMP;
  cl_filter_mode filter = CL_FILTER_NEAREST;
  std::vector<cl_sampler_properties> properties;  // as given to clCreateSamplerWithProperties, else empty
};

}  // namespace grus
