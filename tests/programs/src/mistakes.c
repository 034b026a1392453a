// Calls that programs get wrong, each made in a process of its own because a driver may not survive it.
// Prints for each: its name, the code the call returned (or "crashed"), and the code the specification asks for.
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_mem buffer;  // 256 bytes
static char bytes[4096];

static const char* kSource =
    "__kernel void add(__global int* x, const int by) { x[get_global_id(0)] += by; }\n"
    "__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void fixed(__global int* x) { x[get_global_id(0)] = 1; "
    "}\n";

static void need(cl_int code, const char* what) {
  if (code == CL_SUCCESS) return;
  printf("set-up failed: %s %d\n", what, code);
  fflush(stdout);
  _exit(1);
}

static void set_up(void) {
  cl_int code;
  need(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
  need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
  context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  need(code, "clCreateContext");
  queue = clCreateCommandQueue(context, device, 0, &code);
  need(code, "clCreateCommandQueue");
  buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 256, NULL, &code);
  need(code, "clCreateBuffer");
}

static cl_program unbuilt(const char* source) {
  cl_int code;
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
  need(code, "clCreateProgramWithSource");
  return program;
}

static cl_program built(void) {
  cl_program program = unbuilt(kSource);
  need(clBuildProgram(program, 0, NULL, "", NULL, NULL), "clBuildProgram");
  return program;
}

static cl_kernel kernel_of(cl_program program, const char* name) {
  cl_int code;
  cl_kernel kernel = clCreateKernel(program, name, &code);
  need(code, "clCreateKernel");
  return kernel;
}

// The kernel "add" with both arguments set.
static cl_kernel ready(void) {
  const cl_int by = 1;
  cl_kernel kernel = kernel_of(built(), "add");
  need(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), "clSetKernelArg");
  need(clSetKernelArg(kernel, 1, sizeof by, &by), "clSetKernelArg");
  return kernel;
}

static cl_int launch(cl_kernel which, cl_uint dimensions, size_t global, size_t local) {
  size_t globals[4] = {global, 1, 1, 1}, locals[4] = {local, 1, 1, 1};
  return clEnqueueNDRangeKernel(queue, which, dimensions, NULL, globals, local ? locals : NULL, 0, NULL, NULL);
}

// ---- the mistakes ----
static cl_int release_null_buffer(void) { return clReleaseMemObject(NULL); }
static cl_int release_buffer_twice(void) { return clReleaseMemObject(buffer) ? 1 : clReleaseMemObject(buffer); }
static cl_int release_null_kernel(void) { return clReleaseKernel(NULL); }
static cl_int release_null_event(void) { return clReleaseEvent(NULL); }
static cl_int kernel_name_unknown(void) {
  cl_int code;
  clCreateKernel(built(), "nothing", &code);
  return code;
}
static cl_int kernel_name_null(void) {
  cl_int code;
  clCreateKernel(built(), NULL, &code);
  return code;
}
static cl_int kernel_of_unbuilt(void) {
  cl_int code;
  clCreateKernel(unbuilt(kSource), "add", &code);
  return code;
}
static cl_int build_bad_option(void) {
  return clBuildProgram(unbuilt(kSource), 0, NULL, "-no-such-option", NULL, NULL);
}
static cl_int build_bad_source(void) {
  return clBuildProgram(unbuilt("__kernel void f() { x; }"), 0, NULL, "", NULL, NULL);
}
static cl_int build_devices_without_count(void) { return clBuildProgram(unbuilt(kSource), 0, &device, "", NULL, NULL); }
static cl_int build_under_a_kernel(void) {
  cl_program program = built();
  kernel_of(program, "add");
  return clBuildProgram(program, 0, NULL, "", NULL, NULL);
}
static cl_int source_count_zero(void) {
  cl_int code;
  clCreateProgramWithSource(context, 0, &kSource, NULL, &code);
  return code;
}
static cl_int binary_is_rubbish(void) {
  const unsigned char rubbish[64] = "this is not a program binary";
  const unsigned char* binary = rubbish;
  const size_t size = sizeof rubbish;
  cl_int status, code;
  clCreateProgramWithBinary(context, 1, &device, &size, &binary, &status, &code);
  return code;
}
static cl_int binary_is_empty(void) {
  const unsigned char* binary = (const unsigned char*)"";
  const size_t size = 0;
  cl_int status, code;
  clCreateProgramWithBinary(context, 1, &device, &size, &binary, &status, &code);
  return code;
}
static cl_int device_query_unknown(void) { return clGetDeviceInfo(device, 0x4242, sizeof bytes, bytes, NULL); }
static cl_int device_query_of_a_vendor(void) { return clGetDeviceInfo(device, 0x4000, sizeof bytes, bytes, NULL); }
static cl_int device_query_too_small(void) { return clGetDeviceInfo(device, CL_DEVICE_NAME, 1, bytes, NULL); }
static cl_int platform_query_unknown(void) { return clGetPlatformInfo(platform, 0x4242, sizeof bytes, bytes, NULL); }
static cl_int kernel_query_unknown(void) { return clGetKernelInfo(ready(), 0x4242, sizeof bytes, bytes, NULL); }
static cl_int group_query_unknown(void) {
  return clGetKernelWorkGroupInfo(ready(), device, 0x4242, sizeof bytes, bytes, NULL);
}
static cl_int device_type_unknown(void) {
  cl_uint n;
  return clGetDeviceIDs(platform, (cl_device_type)1 << 40, 0, NULL, &n);
}
static cl_int device_type_missing(void) {
  cl_uint n;
  return clGetDeviceIDs(platform, CL_DEVICE_TYPE_CUSTOM, 0, NULL, &n);
}
static cl_int context_without_devices(void) {
  cl_int code;
  clCreateContext(NULL, 0, NULL, NULL, NULL, &code);
  return code;
}
static cl_int context_property_unknown(void) {
  const cl_context_properties odd[] = {0x4242, 1, 0};
  cl_int code;
  clCreateContext(odd, 1, &device, NULL, NULL, &code);
  return code;
}
static cl_int queue_property_unknown(void) {
  cl_int code;
  clCreateCommandQueue(context, device, 1 << 20, &code);
  return code;
}
static cl_int buffer_size_zero(void) {
  cl_int code;
  clCreateBuffer(context, 0, 0, NULL, &code);
  return code;
}
static cl_int buffer_flags_clash(void) {
  cl_int code;
  clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 64, NULL, &code);
  return code;
}
static cl_int buffer_pointer_missing(void) {
  cl_int code;
  clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 64, NULL, &code);
  return code;
}
static cl_int sub_buffer_outside(void) {
  const cl_buffer_region region = {0, 512};
  cl_int code;
  clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  return code;
}
static cl_int argument_index(void) { return clSetKernelArg(ready(), 2, sizeof buffer, &buffer); }
static cl_int argument_size(void) { return clSetKernelArg(ready(), 1, 16, bytes); }
static cl_int launch_without_arguments(void) { return launch(kernel_of(built(), "add"), 1, 16, 0); }
static cl_int launch_dimensions(void) { return launch(ready(), 4, 16, 0); }
static cl_int launch_group_too_big(void) {  // in all, though not along either axis
  const size_t global[] = {256, 256}, local[] = {256, 256};
  return clEnqueueNDRangeKernel(queue, ready(), 2, NULL, global, local, 0, NULL, NULL);
}
static cl_int launch_group_not_as_required(void) {
  cl_kernel fixed = kernel_of(built(), "fixed");
  clSetKernelArg(fixed, 0, sizeof buffer, &buffer);
  return launch(fixed, 1, 16, 4);
}
static cl_int read_outside(void) { return clEnqueueReadBuffer(queue, buffer, CL_TRUE, 200, 100, bytes, 0, NULL, NULL); }
static cl_int read_to_null(void) { return clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 16, NULL, 0, NULL, NULL); }
static cl_int wait_list_missing(void) {
  return clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 16, bytes, 1, NULL, NULL);
}
static cl_int copy_onto_itself(void) { return clEnqueueCopyBuffer(queue, buffer, buffer, 0, 8, 16, 0, NULL, NULL); }
static cl_int unmap_what_is_not_mapped(void) { return clEnqueueUnmapMemObject(queue, buffer, bytes, 0, NULL, NULL); }
static cl_int wait_for_nothing(void) { return clWaitForEvents(0, NULL); }
static cl_int profile_without_profiling(void) {
  cl_event event;
  need(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 16, bytes, 0, NULL, &event), "clEnqueueWriteBuffer");
  return clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof bytes, bytes, NULL);
}
static cl_int user_event_set_twice(void) {
  cl_int code;
  cl_event event = clCreateUserEvent(context, &code);
  return clSetUserEventStatus(event, CL_COMPLETE) ? 1 : clSetUserEventStatus(event, CL_COMPLETE);
}

static const struct {
  const char* name;
  cl_int (*make)(void);
  cl_int specified;
} kMistakes[] = {
#define MISTAKE(function, specified) \
  { #function, function, specified }
    MISTAKE(release_null_buffer, CL_INVALID_MEM_OBJECT),
    MISTAKE(release_buffer_twice, CL_INVALID_MEM_OBJECT),
    MISTAKE(release_null_kernel, CL_INVALID_KERNEL),
    MISTAKE(release_null_event, CL_INVALID_EVENT),
    MISTAKE(kernel_name_unknown, CL_INVALID_KERNEL_NAME),
    MISTAKE(kernel_name_null, CL_INVALID_VALUE),
    MISTAKE(kernel_of_unbuilt, CL_INVALID_PROGRAM_EXECUTABLE),
    MISTAKE(build_bad_option, CL_INVALID_BUILD_OPTIONS),
    MISTAKE(build_bad_source, CL_BUILD_PROGRAM_FAILURE),
    MISTAKE(build_devices_without_count, CL_INVALID_VALUE),
    MISTAKE(build_under_a_kernel, CL_INVALID_OPERATION),
    MISTAKE(source_count_zero, CL_INVALID_VALUE),
    MISTAKE(binary_is_rubbish, CL_INVALID_BINARY),
    MISTAKE(binary_is_empty, CL_INVALID_VALUE),
    MISTAKE(device_query_unknown, CL_INVALID_VALUE),
    MISTAKE(device_query_of_a_vendor, CL_INVALID_VALUE),
    MISTAKE(device_query_too_small, CL_INVALID_VALUE),
    MISTAKE(platform_query_unknown, CL_INVALID_VALUE),
    MISTAKE(kernel_query_unknown, CL_INVALID_VALUE),
    MISTAKE(group_query_unknown, CL_INVALID_VALUE),
    MISTAKE(device_type_unknown, CL_INVALID_DEVICE_TYPE),
    MISTAKE(device_type_missing, CL_DEVICE_NOT_FOUND),
    MISTAKE(context_without_devices, CL_INVALID_VALUE),
    MISTAKE(context_property_unknown, CL_INVALID_PROPERTY),
    MISTAKE(queue_property_unknown, CL_INVALID_VALUE),
    MISTAKE(buffer_size_zero, CL_INVALID_BUFFER_SIZE),
    MISTAKE(buffer_flags_clash, CL_INVALID_VALUE),
    MISTAKE(buffer_pointer_missing, CL_INVALID_HOST_PTR),
    MISTAKE(sub_buffer_outside, CL_INVALID_VALUE),
    MISTAKE(argument_index, CL_INVALID_ARG_INDEX),
    MISTAKE(argument_size, CL_INVALID_ARG_SIZE),
    MISTAKE(launch_without_arguments, CL_INVALID_KERNEL_ARGS),
    MISTAKE(launch_dimensions, CL_INVALID_WORK_DIMENSION),
    MISTAKE(launch_group_too_big, CL_INVALID_WORK_GROUP_SIZE),
    MISTAKE(launch_group_not_as_required, CL_INVALID_WORK_GROUP_SIZE),
    MISTAKE(read_outside, CL_INVALID_VALUE),
    MISTAKE(read_to_null, CL_INVALID_VALUE),
    MISTAKE(wait_list_missing, CL_INVALID_EVENT_WAIT_LIST),
    MISTAKE(copy_onto_itself, CL_MEM_COPY_OVERLAP),
    MISTAKE(unmap_what_is_not_mapped, CL_INVALID_VALUE),
    MISTAKE(wait_for_nothing, CL_INVALID_VALUE),
    MISTAKE(profile_without_profiling, CL_PROFILING_INFO_NOT_AVAILABLE),
    MISTAKE(user_event_set_twice, CL_INVALID_OPERATION),
};

int main(void) {
  for (size_t i = 0; i < sizeof kMistakes / sizeof kMistakes[0]; ++i) {
    fflush(stdout);
    const pid_t child = fork();  // this process has made no OpenCL call, so the child starts clean
    if (child == 0) {
      set_up();
      printf("%s %d specified %d\n", kMistakes[i].name, kMistakes[i].make(), kMistakes[i].specified);
      fflush(stdout);
      _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    if (WIFSIGNALED(status)) printf("%s crashed specified %d\n", kMistakes[i].name, kMistakes[i].specified);
    if (WIFEXITED(status) && WEXITSTATUS(status)) return 1;
  }
  return 0;
}
