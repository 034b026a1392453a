// Entry points: shared virtual memory and pipes, which are not offered, as OpenCL 3.0 allows: devices say that they
// have none, and these calls answer as the specification says for such devices.
#include "api/call.hpp"
#include "api/check.hpp"

namespace grus::api {
namespace {

cl_int check_queue(cl_command_queue handle) {
  return live<Queue>(handle) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}
cl_int check_kernel(cl_kernel handle) { return live<Kernel>(handle) ? CL_INVALID_OPERATION : CL_INVALID_KERNEL; }

}  // namespace

void* clSVMAlloc(cl_context, cl_svm_mem_flags, std::size_t, cl_uint) { return nullptr; }
void clSVMFree(cl_context, void*) {}

cl_int clEnqueueSVMFree(cl_command_queue queue, cl_uint, void**,
                        void(CL_CALLBACK*)(cl_command_queue, cl_uint, void**, void*), void*, cl_uint, const cl_event*,
                        cl_event*) {
  return check_queue(queue);
}
cl_int clEnqueueSVMMemcpy(cl_command_queue queue, cl_bool, void*, const void*, std::size_t, cl_uint, const cl_event*,
                          cl_event*) {
  return check_queue(queue);
}
cl_int clEnqueueSVMMemFill(cl_command_queue queue, void*, const void*, std::size_t, std::size_t, cl_uint,
                           const cl_event*, cl_event*) {
  return check_queue(queue);
}
cl_int clEnqueueSVMMap(cl_command_queue queue, cl_bool, cl_map_flags, void*, std::size_t, cl_uint, const cl_event*,
                       cl_event*) {
  return check_queue(queue);
}
cl_int clEnqueueSVMUnmap(cl_command_queue queue, void*, cl_uint, const cl_event*, cl_event*) {
  return check_queue(queue);
}
cl_int clEnqueueSVMMigrateMem(cl_command_queue queue, cl_uint, const void**, const std::size_t*, cl_mem_migration_flags,
                              cl_uint, const cl_event*, cl_event*) {
  return check_queue(queue);
}

cl_int clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint, const void*) { return check_kernel(kernel); }
cl_int clSetKernelExecInfo(cl_kernel kernel, cl_kernel_exec_info, std::size_t, const void*) {
  return check_kernel(kernel);
}

Result<cl_mem> clCreatePipe(cl_context context, cl_mem_flags, cl_uint, cl_uint, const cl_pipe_properties*) {
  return Failure{live<Context>(context) ? CL_INVALID_OPERATION : CL_INVALID_CONTEXT};
}
cl_int clGetPipeInfo(cl_mem, cl_pipe_info, std::size_t, void*, std::size_t*) { return CL_INVALID_MEM_OBJECT; }

}  // namespace grus::api
