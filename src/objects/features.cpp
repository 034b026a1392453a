#include "objects/features.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/log.hpp"

namespace grus {
namespace {

using std::string_view;

// Extensions that only concern the language, or whose entry points and queries Grus has.
constexpr auto kOffered = std::to_array<string_view>({
    "cl_khr_icd",
    "cl_khr_byte_addressable_store",
    "cl_khr_global_int32_base_atomics",
    "cl_khr_global_int32_extended_atomics",
    "cl_khr_local_int32_base_atomics",
    "cl_khr_local_int32_extended_atomics",
    "cl_khr_int64_base_atomics",
    "cl_khr_int64_extended_atomics",
    "cl_khr_fp16",
    "cl_khr_fp64",
    "cl_khr_select_fprounding_mode",
    "cl_khr_3d_image_writes",
    "cl_khr_image2d_from_buffer",
    "cl_khr_depth_images",
    "cl_khr_il_program",
    "cl_khr_spir",
    "cl_khr_create_command_queue",
    "cl_khr_priority_hints",
    "cl_khr_throttle_hints",
    "cl_khr_subgroups",
    "cl_khr_subgroup_ballot",
    "cl_khr_subgroup_clustered_reduce",
    "cl_khr_subgroup_extended_types",
    "cl_khr_subgroup_named_barrier",
    "cl_khr_subgroup_non_uniform_arithmetic",
    "cl_khr_subgroup_non_uniform_vote",
    "cl_khr_subgroup_rotate",
    "cl_khr_subgroup_shuffle",
    "cl_khr_subgroup_shuffle_relative",
    "cl_khr_expect_assume",
    "cl_khr_extended_bit_ops",
    "cl_khr_integer_dot_product",
    "cl_khr_device_uuid",
    "cl_khr_pci_bus_info",
    "cl_khr_extended_versioning",
    "cl_khr_extended_async_copies",
    "cl_khr_async_work_group_copy_fence",
    "cl_khr_work_group_uniform_arithmetic",
    "cl_khr_spirv_extended_debug_info",
    "cl_khr_spirv_linkonce_odr",
    "cl_khr_spirv_no_integer_wrap_decoration",
    "cl_nv_compiler_options",
    "cl_nv_device_attribute_query",
    "cl_nv_pragma_unroll",
    "cl_nv_copy_opts",
    "cl_nv_kernel_attribute",
    "cl_amd_device_attribute_query",
    "cl_amd_media_ops",
    "cl_amd_media_ops2",
    "cl_amd_popcnt",
    "cl_intel_subgroups",
    "cl_intel_subgroups_short",
    "cl_intel_subgroups_char",
    "cl_intel_subgroups_long",
    "cl_intel_required_subgroup_size",
    "cl_intel_device_attribute_query",
    "cl_intel_split_work_group_barrier",
    "cl_arm_core_id",
    "cl_arm_integer_dot_product_int8",
    "cl_ext_float_atomics",
    "cl_ext_cxx_for_opencl",
    "cles_khr_int64",
});

constexpr auto kHiddenMacros = std::to_array<string_view>({
    "__opencl_c_pipes",
    "__opencl_c_device_enqueue",
    "__opencl_c_program_scope_global_variables",
});

}  // namespace

bool is_offered(string_view extension) {
  return std::find(kOffered.begin(), kOffered.end(), extension) != kOffered.end();
}

std::string offered_extensions(string_view all) {
  std::string offered;
  for (std::size_t start = 0; start < all.size();) {
    const std::size_t end = std::min(all.find(' ', start), all.size());
    if (is_offered(all.substr(start, end - start))) {
      if (!offered.empty()) offered += ' ';
      offered += all.substr(start, end - start);
    }
    start = end + 1;
  }
  return offered;
}

std::vector<cl_name_version> offered_extensions(const std::vector<cl_name_version>& all) {
  std::vector<cl_name_version> offered;
  for (const auto& extension : all) {
    if (is_offered({extension.name, strnlen(extension.name, sizeof extension.name)})) offered.push_back(extension);
  }
  return offered;
}

bool is_hidden_language_feature(string_view macro) {
  return std::find(kHiddenMacros.begin(), kHiddenMacros.end(), macro) != kHiddenMacros.end();
}

std::size_t hidden_feature_answer_size(cl_device_info query) {
  switch (query) {
    case CL_DEVICE_SVM_CAPABILITIES:
    case CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES:
    case CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES:
    case CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE:
    case CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE:
      return sizeof(cl_ulong);
    case CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE:
    case CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE:
    case CL_DEVICE_MAX_ON_DEVICE_QUEUES:
    case CL_DEVICE_MAX_ON_DEVICE_EVENTS:
    case CL_DEVICE_PIPE_SUPPORT:
    case CL_DEVICE_MAX_PIPE_ARGS:
    case CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS:
    case CL_DEVICE_PIPE_MAX_PACKET_SIZE:
      return sizeof(cl_uint);
    default:
      return 0;
  }
}

const std::vector<HiddenFeature>& hidden_features() {
  static const std::vector<HiddenFeature> features = {
      {"shared virtual memory", "programs keep device addresses in it, which mean nothing on another device"},
      {"device-side enqueue", "its queues live on the device, where a move can't see what they hold"},
      {"pipes", "their state can't be read back from the device"},
      {"program-scope variables",
       "their memory can't be read back from the device; a program that has them runs, but can't be moved"},
  };
  return features;
}

cl_device_type presented_type() {
  static const cl_device_type type = []() -> cl_device_type {
    const char* wanted = std::getenv("GRUS_PRESENT_AS");
    if (!wanted || !*wanted) return 0;
    const string_view name = wanted;
    if (name == "gpu") return CL_DEVICE_TYPE_GPU;
    if (name == "cpu") return CL_DEVICE_TYPE_CPU;
    if (name == "accelerator") return CL_DEVICE_TYPE_ACCELERATOR;
    log::warn("present-as", "GRUS_PRESENT_AS={} is none of gpu, cpu, accelerator; devices tell what they are", name);
    return 0;
  }();
  return type;
}

}  // namespace grus
