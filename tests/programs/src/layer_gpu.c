// A loader layer that makes every device look like a GPU, so that programs which only look for GPUs can run
// natively on a CPU's driver and be compared with what they do through Grus.
#include <CL/cl_layer.h>

static const cl_icd_dispatch* below;
static cl_icd_dispatch layer;

static cl_int CL_API_CALL get_device_ids(cl_platform_id platform, cl_device_type type, cl_uint room,
                                         cl_device_id* devices, cl_uint* count) {
  return below->clGetDeviceIDs(platform, type & CL_DEVICE_TYPE_GPU ? CL_DEVICE_TYPE_ALL : type, room, devices, count);
}

static cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, size_t room, void* answer,
                                          size_t* size) {
  const cl_int error = below->clGetDeviceInfo(device, what, room, answer, size);
  if (error == CL_SUCCESS && what == CL_DEVICE_TYPE && answer) *(cl_device_type*)answer = CL_DEVICE_TYPE_GPU;
  return error;
}

static cl_context CL_API_CALL create_context_from_type(const cl_context_properties* properties, cl_device_type type,
                                                       void(CL_CALLBACK* notify)(const char*, const void*, size_t,
                                                                                 void*),
                                                       void* user_data, cl_int* error) {
  return below->clCreateContextFromType(properties, type & CL_DEVICE_TYPE_GPU ? CL_DEVICE_TYPE_ALL : type, notify,
                                        user_data, error);
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t room, void* answer, size_t* size) {
  if (what != CL_LAYER_API_VERSION) return CL_INVALID_VALUE;
  if (answer && room < sizeof(cl_layer_api_version)) return CL_INVALID_VALUE;
  if (answer) *(cl_layer_api_version*)answer = CL_LAYER_API_VERSION_100;
  if (size) *size = sizeof(cl_layer_api_version);
  return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch* target, cl_uint* entries_out,
                                            const cl_icd_dispatch** layer_out) {
  if (!target || !entries_out || !layer_out || entries < sizeof layer / sizeof(void*)) return CL_INVALID_VALUE;
  below = target;
  layer = *target;
  layer.clGetDeviceIDs = get_device_ids;
  layer.clGetDeviceInfo = get_device_info;
  layer.clCreateContextFromType = create_context_from_type;
  *entries_out = sizeof layer / sizeof(void*);
  *layer_out = &layer;
  return CL_SUCCESS;
}
