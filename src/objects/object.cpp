#include "objects/object.hpp"

namespace grus {

const cl_icd_dispatch* g_dispatch = nullptr;
std::atomic<std::uint32_t> g_session_number{1};

}  // namespace grus
